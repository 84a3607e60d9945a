#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "spillway/model.h"
#include "spillway/trial_config.h"

/// Files as PyTorch's exporter writes them, and a small network in one.
namespace spillway::testing {

using nlohmann::json;
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// A safetensors file with this text as `spillway` in its metadata.
std::string exported_file(const std::string& document, const NamedTensors& tensors);

inline json value(int number) { return {{"value", number}}; }

inline json node(const std::string& op, const std::string& overload, json args, int outputs = 1) {
  json made{{"op", op}, {"overload", overload}, {"args", std::move(args)}};
  if (outputs != 1) made["outputs"] = outputs;
  return made;
}

inline json graph(json nodes, int result) {
  return {{"nodes", std::move(nodes)}, {"result", result}};
}

inline json list(std::initializer_list<std::int64_t> numbers) {
  return json(std::vector<std::int64_t>(numbers));
}

/// Numbers the values of a graph while it is written.
class GraphNodes {
 public:
  explicit GraphNodes(int num_given) : next_(num_given) {}

  /// Returns the first output.
  int add(const std::string& op, const std::string& overload, json args, int outputs = 1) {
    nodes_.push_back(node(op, overload, std::move(args), outputs));
    next_ += outputs;
    return next_ - outputs;
  }
  /// Its bias follows the weight.
  int linear(int x, int weight) {
    return add("aten::linear", "", {value(x), value(weight), value(weight + 1)});
  }
  json graph(int result) const { return testing::graph(nodes_, result); }

 private:
  json nodes_ = json::array();
  int next_;
};

/// A layer with one input and outputs of float32.
inline json layer_json(const char* name, const char* input, const std::vector<int>& params,
                       const std::vector<int>& constants, int train, int eval,
                       const std::vector<std::int64_t>& shape) {
  return {{"name", name},
          {"inputs", {input}},
          {"parameters", params},
          {"constants", constants},
          {"train", train},
          {"eval", eval},
          {"output", {{"shape", shape}, {"dtype", "float32"}, {"differentiable", true}}}};
}

inline json param_json(const std::string& name, bool trainable = true, bool decay = true) {
  return {{"name", name}, {"trainable", trainable}, {"decay", decay}};
}

struct ExportedNet {
  json document;
  NamedTensors tensors;

  std::string bytes() const { return exported_file(document.dump(), tensors); }
  void write(const std::filesystem::path& path) const;
};

inline constexpr std::int64_t kNetBatch = 4, kNetInputs = 8, kNetWidth = 16, kNetClasses = 4;
inline constexpr std::int64_t kIgnoredClass = 3;

/// Not all the same, and the same every time.
at::Tensor made_up(std::vector<std::int64_t> shape, double phase);

/// A classifier with dropout, batch norm, a tied and a frozen matrix, a constant, a number in a
/// tensor's place, lists of tensors, and classes that do not count.
ExportedNet exported_net(double dropout = 0.25);

/// A virtual node of samples.
at::Tensor net_rows();

/// The initial values, as layers get them.
std::vector<at::Tensor> initial_values(const Model& model, std::uint64_t seed = 1);

/// Samples for it: 240 of them.
std::shared_ptr<const DataSplit> exported_net_data();

TrialConfig exported_trial(const std::filesystem::path& file);

}  // namespace spillway::testing
