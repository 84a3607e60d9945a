#include "trainer/compute/sum_term.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/fold.h"
#include "scheduler/plan/layout.h"
#include "spillway/ids.h"
#include "spillway/units.h"

namespace spillway {
namespace {

ParamSpec parameter(std::size_t n, DType gradient) {
  return {.name = "p",
          .tensor = {DType::f32, {{"channel", static_cast<std::int64_t>(n)}}},
          .gradient = gradient};
}

std::vector<float> gradient_of(int vn, std::size_t n) {
  std::vector<float> x(n);
  kernels::fill_normal(x.data(), n, 1, {.seed = 5, .vn = static_cast<std::uint32_t>(vn)});
  return x;
}

using Merge = void (*)(kernels::Stream, float*, const float*, const ParamSpec&);

/// The step's sum: each lane folds its groups and packs finished sums, the host does the rest.
std::vector<std::byte> summed_by(const std::vector<GroupRange>& lanes, int groups,
                                 const ParamSpec& param, Merge merge) {
  const auto n = static_cast<std::size_t>(param.tensor.elements());
  std::map<int, std::vector<std::byte>> packed;  // by first group
  std::vector<int> firsts;
  for (const GroupRange lane : lanes) {
    const FoldPlan plan = plan_fold(lane, groups, 2);
    std::vector<std::vector<float>> slots(at(plan.num_slots), std::vector<float>(n));
    for (std::size_t vn = 0; vn < plan.steps.size(); ++vn) {
      const auto term = gradient_of(2 * lane.begin + static_cast<int>(vn), n);
      const FoldStep& step = plan.steps[vn];
      add_term(nullptr, slots[at(step.slot)].data(),
               reinterpret_cast<const std::byte*>(term.data()), param.tensor, step.fresh);
      for (const auto& [into, from] : step.merges) {
        merge(nullptr, slots[at(into)].data(), slots[at(from)].data(), param);
      }
    }
    for (const auto& [first, slot] : plan.roots) {
      firsts.push_back(first);
      packed[first].resize(param.finished_sum().bytes());
      const auto* sum = reinterpret_cast<const std::byte*>(slots[at(slot)].data());
      pack_sum(nullptr, packed[first].data(), sum, param);
    }
  }
  for (const auto& [into, from] : remaining_merges(firsts, groups)) {
    add_packed(packed[into].data(), packed[from].data(), param.finished_sum().dtype,
               param.finished_sum().bytes());
  }
  return packed[0];
}

const std::vector<std::vector<GroupRange>> kLanes{
    {{0, 7}}, {{0, 4}, {4, 7}}, {{0, 1}, {1, 6}, {6, 7}}, {{0, 3}, {3, 4}, {4, 5}, {5, 7}}};

/// Sums of more elements than a thread takes, and not a multiple of that.
template <typename T>
void expect_the_bits_of_one_thread(DType type) {
  const std::size_t n = 5 * (kHostGrain / sizeof(float)) + 4321;
  const TensorSpec sum = parameter(n, type).finished_sum();
  std::vector<T> into(n), from(n);
  for (auto [vn, x] : {std::pair{0, &into}, {1, &from}}) {
    const std::vector<float> values = gradient_of(vn, n);
    if constexpr (std::is_same_v<T, BFloat16>) {
      kernels::narrow(x->data(), values.data(), n);
    } else {
      *x = values;
    }
  }
  std::vector<T> by_one = into;
  kernels::add(by_one.data(), from.data(), n);
  auto* const bytes = reinterpret_cast<std::byte*>(into.data());
  add_packed(bytes, reinterpret_cast<const std::byte*>(from.data()), sum.dtype, sum.bytes());
  EXPECT_EQ(std::memcmp(into.data(), by_one.data(), sum.bytes()), 0);
  const double norm = kernels::squared_norm(by_one.data(), n);
  EXPECT_EQ(squared_norm_of(bytes, sum), norm);
  bytes[0] ^= std::byte{1};
  EXPECT_NE(squared_norm_of(bytes, sum), norm) << "each bit counts";
}

TEST(PackedSums, OfManyThreadsHaveTheBitsOfOne) {
  expect_the_bits_of_one_thread<float>(DType::f32);
  expect_the_bits_of_one_thread<BFloat16>(DType::bf16);
}

TEST(FinishedSums, DoNotDependOnLanes) {
  for (const DType gradient : {DType::f32, DType::bf16}) {
    const ParamSpec param = parameter(1000, gradient);
    const auto alone = summed_by(kLanes[0], 7, param, merge_sum);
    for (const auto& lanes : kLanes) EXPECT_EQ(summed_by(lanes, 7, param, merge_sum), alone);
  }
}

/// Negative control: a lane does not round what it adds up itself.
TEST(FinishedSums, DependOnLanesIfOnlyTravellingSumsAreRounded) {
  const Merge unrounded = [](kernels::Stream stream, float* into, const float* from,
                             const ParamSpec& param) {
    merge_sum(stream, into, from, parameter(at(param.tensor.elements()), DType::f32));
  };
  const ParamSpec param = parameter(1000, DType::bf16);
  EXPECT_NE(summed_by(kLanes[0], 7, param, unrounded), summed_by(kLanes[2], 7, param, unrounded));
}

/// Packs in place, from the front, over memory that is already read.
TEST(FinishedSums, ArePackedInPlaceWithTheSameBits) {
  for (const std::size_t n : {1u, 31u, 32u, 33u, 1000u, 100'003u}) {
    for (const DType gradient : {DType::f32, DType::bf16}) {
      for (const Bytes gap : {kAlignment, 3 * kAlignment, Bytes{1} << 20}) {
        const ParamSpec param = parameter(n, gradient);
        const auto sum = gradient_of(0, n);
        std::vector<std::byte> apart(param.finished_sum().bytes());
        pack_sum(nullptr, apart.data(), reinterpret_cast<const std::byte*>(sum.data()), param);
        std::vector<std::byte> memory(gap + param.tensor.bytes());
        std::memcpy(memory.data() + gap, sum.data(), param.tensor.bytes());
        pack_sum(nullptr, memory.data(), memory.data() + gap, param);
        memory.resize(apart.size());
        ASSERT_EQ(memory, apart) << n << " elements, " << gap << " bytes apart";
      }
    }
  }
}

TEST(FinishedSums, KeepObservationsUnrounded) {
  ModelSpec model;
  model.params = {parameter(100, DType::bf16), parameter(10, DType::bf16)};
  model.params[1].trainable = false;
  model.params[1].statistic.kind = StatisticSpec::Kind::average;
  model.layers = {{.name = "norm", .kind = "norm", .params = {0, 1}}};
  const SumPlaces places = sum_places(model, model.layers[0]);
  EXPECT_EQ(model.params[1].finished_sum().dtype, DType::f32);
  const Bytes wide_bytes = round_up(400, kAlignment), packed_bytes = round_up(200, kAlignment);
  EXPECT_EQ(places.offsets, (std::vector<Bytes>{kAlignment, kAlignment + wide_bytes}));
  EXPECT_EQ(places.packed_offsets, (std::vector<Bytes>{0, packed_bytes}));
  EXPECT_EQ(places.bytes, kAlignment + wide_bytes + kAlignment);
  EXPECT_EQ(places.packed_bytes, packed_bytes + kAlignment);
  model.params[0].gradient = DType::f32;
  const SumPlaces wide = sum_places(model, model.layers[0]);
  EXPECT_EQ(wide.bytes, wide.packed_bytes);
  EXPECT_EQ(wide.offsets, wide.packed_offsets);
}

}  // namespace
}  // namespace spillway
