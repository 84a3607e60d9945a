#include "models/exported/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "models/base/model_checks.h"
#include "models/exported/adapter_fields.h"
#include "models/exported/graph_adapter.h"
#include "models/graphs/graph_node.h"

namespace spillway {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr const char* kTargets = "target_modules";
constexpr std::size_t kMostNames = 8;  // in a message

void check(const LoraConfig& adapter) {
  ConfigCheck check("adapter.");
  FieldCheck fields(check);
  visit_lora(adapter, fields);
  detail::require_dropout(check, adapter.dropout);
  check.require(!adapter.target_modules.empty(), kTargets,
                "is missing; name linear layers, such as [q_proj, v_proj], or all-linear");
  check.finish();
}

[[noreturn]] void reject(const std::string& problem) {
  throw ConfigError(std::string("adapter.") + kTargets, 0, problem);
}

/// "layers.0.q_proj" for "layers.0.q_proj.weight"; empty for others.
std::string_view module_of(std::string_view param) {
  return param.ends_with(kWeight) ? param.substr(0, param.size() - kWeight.size()) : "";
}

/// PEFT's rule.
bool names(const std::string& target, std::string_view module) {
  return module == target || (module.ends_with(target) &&
                              module.substr(0, module.size() - target.size()).ends_with('.'));
}

class Lora {
 public:
  Lora(ExportedSpec& spec, const LoraConfig& adapter)
      : spec_(spec), adapter_(adapter), uses_(spec.params.size()) {
    for (const ExportedLayer& layer : spec_.layers) count_uses(layer);
  }

  void add() && {
    require_none();
    const std::set<int> chosen = is_everything() ? all_but_output() : named();
    for (ExportedParam& param : spec_.params) param.trainable = false;
    for (const int param : chosen) add_params(param);
    bool is_differentiable = false;
    for (ExportedLayer& layer : spec_.layers) {
      is_differentiable |= adapt(layer);
      layer.differentiable &= is_differentiable;
    }
  }

 private:
  /// How the training graphs read a parameter.
  struct Uses {
    int all = 0, linear = 0;
    bool transposed = false;
  };

  const ExportedGraph& graph(int number) const {
    return spec_.graphs[static_cast<std::size_t>(number)];
  }
  const ExportedParam& param(int number) const {
    return spec_.params[static_cast<std::size_t>(number)];
  }
  const Uses& uses(int param) const { return uses_[static_cast<std::size_t>(param)]; }

  void count_uses(const ExportedLayer& layer) {
    for (const GraphNode& node : graph(layer.train).nodes) {
      for_each_value(node, [&](int value) {
        if (const int p = layer.param_of(value); p >= 0) ++uses_[static_cast<std::size_t>(p)].all;
      });
      const auto linear = linear_call(node);
      const int weight = linear ? layer.param_of(linear->weight) : -1;
      if (weight < 0) continue;
      ++uses_[static_cast<std::size_t>(weight)].linear;
      uses_[static_cast<std::size_t>(weight)].transposed = linear->transposed;
    }
  }

  void require_none() const {
    for (const ExportedParam& each : spec_.params) {
      const std::string& name = each.tensor.name;
      if (name.find(".lora_") == name.npos && name.find(".base_layer.") == name.npos) continue;
      throw ConfigError(
          "adapter", 0,
          fmt::format("cannot be added to model '{}', which has an adapter already, '{}'; export "
                      "the model without it, or remove adapter",
                      spec_.name, name));
    }
  }

  bool is_everything() const {
    return adapter_.target_modules == std::vector<std::string>{"all-linear"};
  }

  bool is_linear(int number) const {
    const ExportedParam& weight = param(number);
    return uses(number).linear > 0 && weight.tensor.shape.size() == 2 &&
           weight.statistic.kind == StatisticSpec::Kind::none &&
           !module_of(weight.tensor.name).empty();
  }

  /// Modules that share a weight would have an adapter each in PEFT.
  void require_adaptable(int number) const {
    const std::string_view module = module_of(param(number).tensor.name);
    if (!is_linear(number)) {
      reject(fmt::format("names '{}', which is no linear layer; {}", module, remedy()));
    }
    if (uses(number).all > 1) {
      reject(fmt::format("names '{}', whose weight is tied: the model uses it {} times; {}", module,
                         uses(number).all, remedy()));
    }
  }

  std::set<int> all_but_output() const {
    std::set<int> chosen;
    for (int p = 0; p < static_cast<int>(spec_.params.size()); ++p) {
      const bool is_embedding = uses(p).all > uses(p).linear;
      if (!is_linear(p) || is_embedding || p == output_param()) continue;
      require_adaptable(p);
      chosen.insert(p);
    }
    if (chosen.empty())
      reject(fmt::format(
          "is all-linear, but model '{}' has no linear layer beside its output layer", spec_.name));
    return chosen;
  }

  std::set<int> named() const {
    std::set<int> chosen;
    for (const std::string& target : adapter_.target_modules) {
      bool found = false;
      for (int p = 0; p < static_cast<int>(spec_.params.size()); ++p) {
        if (!names(target, module_of(param(p).tensor.name))) continue;
        require_adaptable(p);
        chosen.insert(p);
        found = true;
      }
      if (!found)
        reject(fmt::format("has '{}', which names no module of '{}'; {}", target, spec_.name,
                           remedy()));
    }
    return chosen;
  }

  /// "name others, such as k_proj, q_proj"
  std::string remedy() const {
    std::set<std::string_view> others;
    for (int p = 0; p < static_cast<int>(spec_.params.size()); ++p) {
      const std::string_view module = module_of(param(p).tensor.name);
      if (is_linear(p) && uses(p).all == 1) others.insert(module.substr(module.rfind('.') + 1));
    }
    if (others.empty()) return "the model has no linear layers that can have one";
    while (others.size() > kMostNames) others.erase(std::prev(others.end()));
    return fmt::format("name others, such as {}", fmt::join(others, ", "));
  }

  /// The matrix from whose product the output of the model is made; -1: there is none.
  int output_param() const {
    const int last = spec_.loss.inputs.front().layer;
    if (last < 0) return -1;
    const ExportedLayer& layer = spec_.layers[static_cast<std::size_t>(last)];
    const ExportedGraph& made_by = graph(layer.train);
    int value = made_by.result, first = static_cast<int>(num_given(layer));
    std::vector<int> makers;  // nodes, by value behind the given ones
    for (std::size_t n = 0; n < made_by.nodes.size(); ++n)
      makers.insert(makers.end(), static_cast<std::size_t>(made_by.nodes[n].num_outputs),
                    static_cast<int>(n));
    while (value >= first) {
      const auto& node =
          made_by.nodes[static_cast<std::size_t>(makers[static_cast<std::size_t>(value - first)])];
      if (const auto linear = linear_call(node)) return layer.param_of(linear->weight);
      std::set<int> reads;
      for_each_value(node, [&](int read) { reads.insert(read); });
      if (reads.size() != 1) return -1;
      value = *reads.begin();
    }
    return -1;
  }

  void add_params(int number) {
    const TensorEntry weight = param(number).tensor;
    const bool transposed = uses(number).transposed;
    const std::int64_t in = weight.shape[transposed ? 0 : 1],
                       out = weight.shape[transposed ? 1 : 0];
    if (adapter_.r > detail::kMaxTensorElements / std::max(in, out)) {
      throw ConfigError("adapter.r", 0,
                        fmt::format("is {}, too large for '{}' of {} x {}; write a smaller number",
                                    adapter_.r, module_of(weight.name), out, in));
    }
    first_[number] = static_cast<int>(spec_.params.size());
    // Kaiming's rule for a slope of sqrt(5).
    add_param(weight, "lora_A", {adapter_.r, in}, 1 / std::sqrt(static_cast<double>(in)));
    add_param(weight, "lora_B", {out, adapter_.r}, 0);
  }

  /// Named as PEFT does.
  void add_param(const TensorEntry& weight, const char* matrix,
                 const std::array<std::int64_t, 2>& shape, double uniform) {
    TensorEntry entry{.name = fmt::format("base_model.model.{}.{}.default.weight",
                                          module_of(weight.name), matrix),
                      .dtype = "F32",
                      .shape = {shape.begin(), shape.end()},
                      .end = sizeof(float) * static_cast<Bytes>(shape[0] * shape[1])};
    spec_.params.push_back({.tensor = std::move(entry), .uniform = uniform});
  }

  static std::size_t num_given(const ExportedLayer& layer) {
    return layer.inputs.size() + layer.params.size() + layer.constants.size();
  }

  /// Returns whether the layer has an adapter.
  bool adapt(ExportedLayer& layer) {
    GraphAdaptation adaptation{
        .num_before = static_cast<int>(layer.inputs.size() + layer.params.size()),
        .num_given = static_cast<int>(num_given(layer)),
        .scale = adapter_.alpha / static_cast<double>(adapter_.r)};
    std::vector<int> added;
    for (std::size_t p = 0; p < layer.params.size(); ++p) {
      const auto found = first_.find(layer.params[p]);
      if (found == first_.end()) continue;
      adaptation.weights.push_back(static_cast<int>(layer.inputs.size() + p));
      added.insert(added.end(), {found->second, found->second + 1});
    }
    if (added.empty()) return false;
    layer.params.insert(layer.params.end(), added.begin(), added.end());
    layer.eval = adapted(layer.eval, adaptation);
    adaptation.dropout = adapter_.dropout;
    layer.train = adapted(layer.train, adaptation);
    require_draws(layer);
    return true;
  }

  /// Equal layers share their graphs.
  int adapted(int number, const GraphAdaptation& adaptation) {
    const auto [known, is_new] =
        adapted_.try_emplace({number, adaptation}, static_cast<int>(spec_.graphs.size()));
    if (is_new) spec_.graphs.push_back(adapted_graph(graph(number), adaptation));
    return known->second;
  }

  void require_draws(const ExportedLayer& layer) const {
    const auto draws = std::ranges::count(graph(layer.train).nodes, kDropout, &GraphNode::op);
    if (draws <= std::int64_t{kMostDropouts}) return;
    throw ConfigError(
        "adapter.dropout", 0,
        fmt::format("is {}, so layer '{}' would drop {} times, but at most {} are possible; "
                    "write 0, or name fewer target_modules",
                    adapter_.dropout, layer.name, draws, kMostDropouts));
  }

  ExportedSpec& spec_;
  const LoraConfig& adapter_;
  std::vector<Uses> uses_;    // by parameter
  std::map<int, int> first_;  // by adapted parameter, lora_A; lora_B follows
  std::map<std::pair<int, GraphAdaptation>, int> adapted_;
};

}  // namespace

void add_adapter(ExportedSpec& spec, const LoraConfig& adapter) {
  check(adapter);
  Lora(spec, adapter).add();
}

}  // namespace spillway
