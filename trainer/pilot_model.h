#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "models/model.h"
#include "trainer/range_runner.h"

namespace spillway {

/// A whole model, taken through a virtual node by one op as in a step, to be run again and again.
/// Graphs live until their backward and sums take turns, so that all lies in farther caches than
/// what a layer by itself uses. Its memory is not any device's.
class PilotModel {
 public:
  explicit PilotModel(const Model& model);
  PilotModel(const PilotModel&) = delete;
  PilotModel& operator=(const PilotModel&) = delete;

  /// Forward with graphs, then backward, gradients folded, and sums merged with those before.
  void run();

  /// Of weights and sums.
  static Bytes bytes(const ModelSpec& spec);

 private:
  std::byte* new_memory(const TensorSpec& tensor);
  float* sum(std::size_t slot, int layer, std::size_t param) const;

  static constexpr std::size_t kSlots = 3;
  const ModelSpec& spec_;
  std::deque<std::vector<std::int64_t>> storage_;
  std::vector<std::vector<std::byte*>> params_;                     // by layer
  std::array<std::vector<std::vector<std::byte*>>, kSlots> slots_;  // of sums, by layer
  std::size_t slot_ = 0;
  RangeRunner::EdgeMemory batch_;
  double loss_ = 0;
  const RangeRunner runner_;
};

}  // namespace spillway
