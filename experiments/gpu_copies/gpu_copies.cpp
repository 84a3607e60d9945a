#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/device/device.h"
#include "experiments/support/spread.h"
#include "spillway/error.h"

/// Rates of copies to and from a GPU: CUDA's own, and those of a device's queues.
namespace spillway::experiments {
namespace {

constexpr Bytes kBlock = 256_MiB;
constexpr int kBlocks = 8;  // in a row
constexpr int kNoGpu = 77;

struct Ways {
  bool down = false, up = false;  ///< to the GPU, from it
};

void require(cudaError_t code) {
  if (code != cudaSuccess) throw Error(cudaGetErrorString(code));
}

/// CUDA alone, without a queue.
class RawCopies {
 public:
  RawCopies() {
    for (Way* way : {&down_, &up_}) {
      require(cudaHostAlloc(&way->home, kBlock, cudaHostAllocPortable));
      require(cudaMalloc(&way->memory, kBlock));
      require(cudaStreamCreateWithFlags(&way->stream, cudaStreamNonBlocking));
    }
  }
  ~RawCopies() {
    for (const Way& way : {down_, up_}) {
      cudaStreamDestroy(way.stream);
      cudaFree(way.memory);
      cudaFreeHost(way.home);
    }
  }
  RawCopies(const RawCopies&) = delete;
  RawCopies& operator=(const RawCopies&) = delete;

  void copy(Ways ways) const {
    for (int i = 0; i < kBlocks; ++i) {
      if (ways.down) copy(down_.memory, down_.home, down_);
      if (ways.up) copy(up_.home, up_.memory, up_);
    }
    require(cudaStreamSynchronize(down_.stream));
    require(cudaStreamSynchronize(up_.stream));
  }

 private:
  struct Way {
    void *home = nullptr, *memory = nullptr;
    cudaStream_t stream = nullptr;
  };
  static void copy(void* to, const void* from, const Way& way) {
    require(cudaMemcpyAsync(to, from, kBlock, cudaMemcpyDefault, way.stream));
  }
  Way down_, up_;
};

class DeviceCopies {
 public:
  void copy(Ways ways) {
    Queue &h2d = device_->host_to_device(), &d2h = device_->device_to_host();
    for (int i = 0; i < kBlocks; ++i) {
      if (ways.down) h2d.copy_async(memory_->data(), home_->data(), kBlock);
      if (ways.up) d2h.copy_async(home_->data() + kBlock, memory_->data() + kBlock, kBlock);
    }
    h2d.record().wait();
    d2h.record().wait();
    device_->check();
  }

 private:
  const std::unique_ptr<Device> device_ = make_cuda_device("cuda:0", 0, 2 * kBlock);
  const std::unique_ptr<DeviceMemory> memory_ = device_->allocate(2 * kBlock);
  const std::unique_ptr<DeviceMemory> home_ = device_->allocate_host(2 * kBlock);
};

/// Of all blocks, in bytes per ns.
template <typename Copies>
double rate(Copies& copies, Ways ways) {
  const auto begin = std::chrono::steady_clock::now();
  copies.copy(ways);
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(kBlock) * kBlocks * (ways.down && ways.up ? 2 : 1) / time.count();
}

void compare(const char* name, Ways ways, RawCopies& raw, DeviceCopies& ours, int rounds) {
  std::vector<double> raw_rates, our_rates, ratios;
  for (int round = 0; round < rounds; ++round) {
    raw_rates.push_back(rate(raw, ways));
    our_rates.push_back(rate(ours, ways));
    ratios.push_back(our_rates.back() / raw_rates.back());
  }
  print_row({name, text_of(spread_of(raw_rates), 2), text_of(spread_of(our_rates), 2),
             text_of(spread_of(ratios), 3)});
}

int run(int rounds) {
  DeviceCopies ours;
  RawCopies raw;
  for (const Ways ways : {Ways{true, true}, Ways{true, true}}) raw.copy(ways), ours.copy(ways);
  print_head({"copy of 256 MiB", "raw, GB/s", "Spillway, GB/s", "ratio"});
  compare("to the GPU", {.down = true}, raw, ours, rounds);
  compare("from the GPU", {.up = true}, raw, ours, rounds);
  compare("both at once", {.down = true, .up = true}, raw, ours, rounds);
  return 0;
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  try {
    const bool brief = argc > 1 && std::string_view(argv[1]) == "--brief";
    return spillway::experiments::run(brief ? 1 : 11);
  } catch (const spillway::ConfigError& error) {
    std::printf("no GPU to measure: devices: %s\n", error.what());
    return spillway::experiments::kNoGpu;
  }
}
