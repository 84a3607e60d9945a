#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spillway/spec.h"

namespace torch::nn {
class Module;
}

namespace spillway {

/// The running statistics of a module: buffers of the torch::nn::BatchNorm1d, 2d and 3d in it.
class ModuleStatistics {
 public:
  struct Statistic {
    std::string name;  ///< "bn.running_mean"
    StatisticSpec spec;
    std::vector<std::int64_t> shape;
    at::Tensor buffer;  ///< the module's own: the module sees set_data()
  };

  explicit ModuleStatistics(torch::nn::Module& module);
  const std::vector<Statistic>& all() const& { return all_; }
  void all() && = delete;
  bool contains(const std::string& buffer) const;
  /// Whether a parameter of the module belongs to a batch norm.
  bool is_of_norm(const at::Tensor& parameter) const;

  /// Makes the next training forward after start_observing() leave only its own observation in the
  /// buffers.
  static void forget_the_past(torch::nn::Module& module);
  /// Gives the buffers new memory on `device`, all zeros.
  void start_observing(at::Device device);
  /// The observations since then, one for each averaged statistic. The tensors do not change later.
  std::vector<at::Tensor> observations() const;
  /// Points the buffers at `values`, in order.
  void use(std::span<const at::Tensor> values);
  /// Leaves the buffers without memory.
  void release();

 private:
  std::vector<Statistic> all_;
  std::vector<at::Tensor> parameters_;  // of the batch norms
  std::vector<at::Tensor> nothing_;     // for each of them, an empty one of its type
};

}  // namespace spillway
