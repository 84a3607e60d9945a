#include "runs/output/memory_samples.h"

#include <utility>

namespace spillway {

void MemorySamples::take(double now_s, const SessionState& state) {
  constexpr std::size_t kMostSamples = 2000;
  MemorySample sample{.time_s = state.time_s, .host_bytes = state.host_used_bytes};
  for (const auto& device : state.devices) sample.device_bytes.push_back(device.used_bytes);
  samples_.push_back(std::move(sample));
  if (samples_.size() == kMostSamples) {
    std::vector<MemorySample> kept;
    for (std::size_t i = 0; i < samples_.size(); i += 2) kept.push_back(std::move(samples_[i]));
    samples_ = std::move(kept);
    distance_s_ *= 2;
  }
  due_s_ = now_s + distance_s_;
}

}  // namespace spillway
