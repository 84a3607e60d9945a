#pragma once

#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/modules/module_statistics.h"

namespace spillway {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Calls a module with one to four tensors. Throws what it throws.
at::Tensor call(torch::nn::AnyModule& module, std::span<const at::Tensor> inputs);

/// The parameters of a module, those that several of its parts share only once.
NamedTensors unique_parameters(const torch::nn::Module& module);
/// The buffers of a module that are no running statistics, likewise.
NamedTensors constant_buffers(torch::nn::Module& module);

/// Checks whether a module can be a layer. If not, throws ConfigError (`model`) with its name and
/// type.
class CheckedModule {
 public:
  /// The batch size of the tensors that modules are tried with.
  static constexpr std::int64_t kProbe = 2;

  /// Rejects modules that cannot be trained.
  CheckedModule(std::string name, torch::nn::AnyModule module);

  /// Identifies its computation as far as possible: its name, its printed form, and the types of
  /// all modules in it. The same in every process.
  std::string kind() const;
  const torch::nn::AnyModule& module() const { return module_; }
  NamedTensors parameters() const { return unique_parameters(*module_.ptr()); }
  NamedTensors buffers() const { return constant_buffers(*module_.ptr()); }
  ModuleStatistics statistics() const { return ModuleStatistics(*module_.ptr()); }

  /// Runs it on `inputs` [kProbe, ...], checks the output, and leaves its state as it was. Call it
  /// inside a SeededGenerator.
  at::Tensor run(std::span<const at::Tensor> inputs);

 private:
  [[noreturn]] void reject(const std::string& problem) const;
  void check_parameters() const;
  void check_buffers() const;
  at::Tensor forward(std::span<const at::Tensor> inputs);
  /// Every batch norm ran once in the forward since `before`.
  void check_statistics(const std::vector<std::int64_t>& before) const;
  std::vector<std::int64_t> forwards_of_norms() const;

  std::string name_;
  torch::nn::AnyModule module_;
};

/// Runs a module or function on copies of `inputs` in training, with keyed dropout. Returns its
/// output. `reject` is called with what is wrong: random numbers, changes of an input or of one of
/// `state` in place, an output that cannot be a layer's.
at::Tensor run_probe(std::span<const at::Tensor> inputs, const NamedTensors& state,
                     const std::function<at::Tensor(std::span<const at::Tensor>)>& forward,
                     const std::function<void(const std::string&)>& reject);

}  // namespace spillway
