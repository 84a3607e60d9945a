#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "core/device/activation_counter.h"
#include "spillway/model.h"
#include "trainer/compute/range_runner.h"

namespace spillway {

/// A layer of a model with memory for all its inputs and outputs, to be run repeatedly. Runs on any
/// thread, one at a time, with memory of its own; or on a device.
class PilotLayer {
 public:
  /// `alike`: layers that cost the same. Each call uses weights and sums of the next of them, as a
  /// step does, so that they are not in the caches. `device`: null for any thread; otherwise calls
  /// come from its compute queue, and the layer occupies all its planned ranges. Throws OutOfMemory
  /// on a device.
  PilotLayer(const Model& model, const std::vector<int>& alike, Device* device = nullptr);
  PilotLayer(const PilotLayer&) = delete;
  PilotLayer& operator=(const PilotLayer&) = delete;

  /// Without a graph.
  void forward();
  void evaluate();
  /// Forward with a graph, then backward, gradients folded.
  void backward();
  /// The parts of backward(): forward with a graph, and backward of the newest graph.
  void make_graph();
  void backward_of_graph();
  /// Adds the sums of a reduction group to those of another.
  void merge();

  /// Those of the layers alike that may have graphs at once: as many as it has weights for, or one
  /// if graphs have a lease.
  const std::vector<int>& numbers() const { return numbers_; }
  ActivationMeter& meter() {
    return device_ ? device_->activations() : counter_;
  }  ///< of the last call
  Bytes output_bytes() const { return output_bytes_; }
  std::function<void()> after_graph;  ///< called in backward() after its forward

 private:
  /// Aligned memory, filled with small normal random numbers.
  std::byte* new_memory(const TensorSpec& tensor);
  std::byte* new_device_memory(const TensorSpec& tensor);
  LayerContext context(bool training) const;
  void add_input(int number, const EdgeSpec& edge, const LayerSpec& layer);
  void add_output(int number, const EdgeSpec& edge);
  void add_weights();
  void next();
  void run_forward(const RangeRunner& runner);
  void fold(int param, const std::byte* term) const;

  Device* const device_;
  const LayerRange layers_;                      // the first of those alike
  std::unique_ptr<DeviceMemory> device_memory_;  // the memory for planned ranges
  Bytes device_used_ = 0;
  std::deque<std::vector<float>> storage_;
  struct Weights {
    std::vector<std::byte*> params;
    std::vector<float*> sums;  // of their gradients or observations
  };
  std::vector<Weights> weights_;
  std::vector<int> numbers_;
  std::vector<float*> merged_;  // null: the parameter has no sum
  std::size_t current_ = 0;
  std::vector<ParamSpec> params_;
  RangeRunner::EdgeMemory inputs_, outputs_, gradients_, input_gradients_;
  Bytes output_bytes_ = 0;
  double loss_ = 0;
  ActivationCounter counter_{"pilot"};
  RangeRunner runner_;
  struct Graph {
    std::size_t weights = 0;  // the number of its weights
    RangeRunner::Graphs graphs;
  };
  std::vector<Graph> graphs_;  // they need the memory above
  const RangeRunner evaluation_;
};

}  // namespace spillway
