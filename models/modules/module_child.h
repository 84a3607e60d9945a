#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/modules/module_statistics.h"

namespace spillway {

/// Checks whether a child of a Sequential can be a layer. If not, throws ConfigError (`model`) with
/// the child's name and type.
class ModuleChild {
 public:
  /// The batch size of the tensors that children are tried with.
  static constexpr std::int64_t kProbe = 2;

  ModuleChild(std::string name, torch::nn::AnyModule module)
      : name_(std::move(name)), module_(std::move(module)) {}

  const std::string& name() const { return name_; }
  /// Identifies its computation as far as possible: its name, its printed form, and the types of
  /// all modules in it. The same in every process.
  std::string kind() const;
  const torch::nn::AnyModule& module() const { return module_; }
  torch::OrderedDict<std::string, at::Tensor> parameters() const {
    return module_.ptr()->named_parameters();
  }
  ModuleStatistics statistics() const { return ModuleStatistics(*module_.ptr()); }
  /// The probability if the child is a torch::nn::Dropout.
  std::optional<double> dropout() const;
  /// The number of rows if the child is a torch::nn::Embedding or EmbeddingBag.
  std::optional<std::int64_t> num_embeddings() const;

  /// Rejects modules that cannot be trained. `seen`: the memory of parameters so far.
  void check(std::set<const void*>& seen) const;
  /// Runs it on `input` [kProbe, ...] and checks the output. Call it inside a SeededGenerator.
  at::Tensor run(const at::Tensor& input);

 private:
  [[noreturn]] void reject(const std::string& problem) const;
  void check_parameter(const std::string& name, const at::Tensor& value,
                       std::set<const void*>& seen) const;
  void check_output(const at::Tensor& input, const at::Tensor& output) const;
  at::Tensor forward(const at::Tensor& x);
  /// Every batch norm ran once in the forward since `before`.
  void check_statistics(const std::vector<std::int64_t>& before) const;
  std::vector<std::int64_t> forwards_of_norms() const;
  /// Version counters of `x` and the parameters, which change with the values.
  std::vector<std::int64_t> versions(const at::Tensor& x) const;

  std::string name_;
  torch::nn::AnyModule module_;
};

/// Throws ConfigError (`model`) if there are no children.
std::vector<ModuleChild> children_of(torch::nn::Sequential model);

}  // namespace spillway
