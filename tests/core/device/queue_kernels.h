#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "core/base/fold.h"
#include "core/device/device.h"
#include "core/device/kernels.h"
#include "tests/core/device/isa_levels.h"

/// Kernels give the same bits on a queue's device as on the CPU. Each kind of device instantiates
/// the suite.
namespace spillway::kernels {

using MakeDevice = std::unique_ptr<Device> (*)(Bytes budget);

class QueueKernels : public testing::TestWithParam<MakeDevice> {
 protected:
  static constexpr RandomKey kKey{.seed = 0x0FEDCBA987654321u, .step = 11, .vn = 5, .stream = 0x31};

  /// A range on the device, 64 bytes into a page, with these values.
  template <typename T>
  class Array {
   public:
    Array(Device& device, std::size_t n)
        : device_(device), n_(n), memory_(device.allocate(64 + n * sizeof(T))) {}
    Array(Device& device, const std::vector<T>& values) : Array(device, values.size()) {
      const auto home = device.allocate_host(n_ * sizeof(T));
      std::ranges::copy(values, reinterpret_cast<T*>(home->data()));
      device.compute().copy_async(data(), home->data(), n_ * sizeof(T));
      device.compute().record().wait();
    }
    T* data() const { return reinterpret_cast<T*>(memory_->data() + 64); }
    std::vector<T> values() const {
      const auto home = device_.allocate_host(n_ * sizeof(T));
      device_.compute().copy_async(home->data(), data(), n_ * sizeof(T));
      device_.compute().record().wait();
      const T* first = reinterpret_cast<const T*>(home->data());
      return {first, first + n_};
    }

   private:
    Device& device_;
    const std::size_t n_;
    const std::unique_ptr<DeviceMemory> memory_;
  };

  /// Sizes around vectors and blocks, and one of many chunks.
  static std::vector<std::size_t> sizes() {
    auto all = awkward_sizes();
    all.push_back(300 * kNormChunk + 77);
    return all;
  }
  void run(const std::function<void(Stream stream)>& work) {
    Queue& queue = device_->compute();
    queue.enqueue([&] { work(queue.stream()); });
    queue.record().wait();
    device_->check();
  }

  const std::unique_ptr<Device> device_ = GetParam()(64_MiB);
};

TEST_P(QueueKernels, DropsAsOnTheCpu) {
  for (const std::size_t n : sizes()) {
    for (const float p : {0.0f, 0.1f, 0.5f}) {
      const auto in = random_values(n, 1);
      std::vector<float> expected(n);
      dropout(expected.data(), in.data(), n, p, kKey);
      const Array<float> on_device(*device_, in);
      run([&](Stream stream) { dropout(stream, on_device.data(), on_device.data(), n, p, kKey); });
      ASSERT_EQ(bits(on_device.values()), bits(expected)) << n << ", " << p;
    }
  }
}

TEST_P(QueueKernels, GivesTheBitsOfTheCpuForBf16) {
  for (const std::size_t n : sizes()) {
    std::vector<BFloat16> term(n), dropped(n);
    narrow(term.data(), random_values(n, 1).data(), n);
    std::vector<float> sum = random_values(n, 2), wide(n);
    const Array<BFloat16> terms(*device_, term);
    const Array<float> sums(*device_, sum), widened(*device_, n), floats(*device_, sum);
    const Array<BFloat16> narrowed(*device_, n);
    std::vector<float> rounded = sum;
    std::vector<BFloat16> narrow_sum(n);
    narrow(narrow_sum.data(), sum.data(), n);
    add(sum.data(), term.data(), n);
    add_rounded(rounded.data(), sum.data(), n);
    widen(wide.data(), term.data(), n);
    dropout(dropped.data(), term.data(), n, 0.3f, kKey);
    run([&](Stream stream) {
      narrow(stream, narrowed.data(), floats.data(), n);
      add(stream, sums.data(), terms.data(), n);
      add_rounded(stream, floats.data(), sums.data(), n);
      widen(stream, widened.data(), terms.data(), n);
      dropout(stream, terms.data(), terms.data(), n, 0.3f, kKey);
    });
    ASSERT_EQ(bits(sums.values()), bits(sum)) << n;
    ASSERT_EQ(bits(floats.values()), bits(rounded)) << n;
    ASSERT_EQ(bits(widened.values()), bits(wide)) << n;
    ASSERT_EQ(narrowed.values(), narrow_sum) << n;
    ASSERT_EQ(terms.values(), dropped) << n;
  }
}

/// The sums of a lane over its virtual nodes: left folds in groups, then the tree.
TEST_P(QueueKernels, SumsGradientsAsOnTheCpu) {
  constexpr int kGroups = 3;
  constexpr std::size_t kPerGroup = 2;
  for (const std::size_t n : sizes()) {
    std::vector<std::vector<float>> sums;
    std::vector<std::unique_ptr<Array<float>>> on_device;
    const auto add_both = [&](std::size_t into, const std::vector<float>& term,
                              const Array<float>& device_term) {
      add(sums[into].data(), term.data(), n);
      run([&](Stream stream) { add(stream, on_device[into]->data(), device_term.data(), n); });
    };
    for (std::size_t vn = 0; vn < kGroups * kPerGroup; ++vn) {
      const auto gradient = random_values(n, static_cast<std::uint32_t>(vn));
      auto copy = std::make_unique<Array<float>>(*device_, gradient);
      if (vn % kPerGroup == 0) {
        sums.push_back(gradient);
        on_device.push_back(std::move(copy));
      } else {
        add_both(vn / kPerGroup, gradient, *copy);
      }
    }
    for (const auto& [into, from] : remaining_merges({0, 1, 2}, kGroups)) {
      add_both(static_cast<std::size_t>(into), sums[static_cast<std::size_t>(from)],
               *on_device[static_cast<std::size_t>(from)]);
    }
    ASSERT_EQ(bits(on_device[0]->values()), bits(sums[0])) << n;
  }
}

TEST_P(QueueKernels, CopiesAndClears) {
  for (const std::size_t n : sizes()) {
    const auto x = random_values(n, 3);
    const Array<float> from(*device_, x), to(*device_, random_values(n, 4));
    run([&](Stream stream) { copy(stream, to.data(), from.data(), n * sizeof(float)); });
    ASSERT_EQ(bits(to.values()), bits(x)) << n;
    if (n == 0) continue;
    run([&](Stream stream) { clear(stream, to.data(), (n - 1) * sizeof(float)); });
    std::vector<float> cleared(n);
    cleared.back() = x.back();
    ASSERT_EQ(bits(to.values()), bits(cleared)) << n;
  }
}

TEST_P(QueueKernels, ComputesSquaredNormsAsOnTheCpu) {
  for (const std::size_t n : sizes()) {
    const auto x = random_values(n, 7);
    std::vector<BFloat16> narrow_x(n);
    narrow(narrow_x.data(), x.data(), n);
    const Array<float> on_device(*device_, x);
    const Array<BFloat16> narrow_on_device(*device_, narrow_x);
    const Array<double> sum(*device_, 1), narrow_sum(*device_, 1);
    const Array<double> chunks(*device_, num_norm_chunks(n));
    run([&](Stream stream) {
      squared_norm(stream, sum.data(), chunks.data(), on_device.data(), n);
      squared_norm(stream, narrow_sum.data(), chunks.data(), narrow_on_device.data(), n);
    });
    ASSERT_EQ(std::bit_cast<std::uint64_t>(sum.values()[0]),
              std::bit_cast<std::uint64_t>(squared_norm(x.data(), n)))
        << n;
    ASSERT_EQ(narrow_sum.values()[0], squared_norm(narrow_x.data(), n)) << n;
  }
}

}  // namespace spillway::kernels
