#include <utility>

#include "runs/config/run_fields.h"
#include "runs/config/sweep_values.h"
#include "runs/config/yaml_path.h"
#include "runs/config/yaml_writer.h"

namespace spillway {
namespace {

YamlNode parameter_node(const SweepParameter& parameter) {
  using Shape = Distribution::Shape;
  const Distribution& distribution = parameter.distribution;
  YamlWriter out;
  if (distribution.shape == Shape::constant) {
    out.put("value", parameter.values.empty() ? YamlNode{} : parameter.values[0]);
    return out.take();
  }
  if (distribution.shape == Shape::categorical) {
    out.put("values", {.kind = YamlNode::Kind::list, .children = parameter.values});
    if (!parameter.probabilities.empty()) {
      out.field("probabilities", parameter.probabilities, NumberRange{});
    }
    return out.take();
  }
  const auto write = [&](const char* key, double value) {
    out.put(key, scalar(number_text(value)));
  };
  out.put("distribution", scalar(std::string(distribution.name)));
  if (distribution.is_bounded()) {
    write("min", parameter.min);
    write("max", parameter.max);
  } else {
    write("mu", parameter.mu);
    write("sigma", parameter.sigma);
  }
  if (distribution.quantized) write("q", parameter.q);
  return out.take();
}

/// Swept keys have the values of one trial, which mean nothing to the others.
void restore_bases(YamlNode& root, const SweepConfig& sweep) {
  for (const SweepParameter& parameter : sweep.parameters) {
    if (!parameter.base) continue;
    if (parameter.base->node) {
      set_at(root, parameter.base->key, *parameter.base->node);
    } else {
      remove_at(root, parameter.base->key);
    }
  }
}

/// The visitor that takes the fields which are part of the contract.
class ContractFields {
 public:
  /// `all`: also fields that do not apply.
  ContractFields(std::map<std::string, std::string>& fields, std::string prefix, bool all)
      : fields_(fields), prefix_(std::move(prefix)), all_(all) {}

  template <typename Value, typename Range>
  void field(const char* key, const Value& value, const Range& range, const char* /*sentence*/,
             InContract in_contract = InContract::no) {
    if (in_contract == InContract::yes) take(key, YamlWriter::node_of(value, range));
  }
  template <typename Item, typename Visit>
  void list(const char* key, const std::vector<Item>& items, const char* /*example*/,
            const char* /*sentence*/, const Visit& visit, InContract in_contract = InContract::no) {
    if (in_contract == InContract::yes) take(key, YamlWriter::node_of_list(items, visit));
  }
  template <typename Visit>
  void section(const char* key, const Visit& visit) {
    ContractFields inner(fields_, prefix_ + key + ".", all_);
    visit(inner);
  }
  void require_key(const char* /*key*/, const char* /*remedy*/) {}
  bool applies(bool condition) const { return all_ || condition; }
  bool shows(bool condition) const { return condition; }

 private:
  void take(const char* key, const YamlNode& node) {
    std::string text = node.kind == YamlNode::Kind::scalar ? node.text : to_yaml(node);
    if (text.ends_with('\n')) text.pop_back();
    fields_[prefix_ + key] = text;
  }

  std::map<std::string, std::string>& fields_;
  std::string prefix_;
  bool all_;
};

}  // namespace

std::string to_yaml(const RunConfig& config) {
  YamlWriter out;
  visit_run(config, out);
  if (const auto& adapter = config.adapter)
    out.section("adapter", [&](YamlWriter& v) { visit_adapter(*adapter, v); });
  out.section("sweep", [&](YamlWriter& sweep) {
    visit_sweep(config.sweep, sweep);
    if (const auto& early = config.session.early_terminate) {
      sweep.section("early_terminate", [&](YamlWriter& v) { visit_early_terminate(*early, v); });
    }
    sweep.section("parameters", [&](YamlWriter& parameters) {
      for (const auto& parameter : config.sweep.parameters) {
        parameters.put(parameter.key, parameter_node(parameter));
      }
    });
    if (!config.sweep.trials.empty()) {
      sweep.put("trials", {.kind = YamlNode::Kind::list, .children = config.sweep.trials});
    }
  });
  YamlNode root = out.take();
  if (config.num_train_epochs > 0) remove_at(root, "train.max_steps");
  restore_bases(root, config.sweep);
  return to_yaml(root);
}

std::map<std::string, std::string> contract_fields(const RunConfig& config) {
  std::map<std::string, std::string> fields;
  ContractFields model(fields, "model.", /*all=*/false), data(fields, "data.", /*all=*/true);
  visit_model(config, model);
  visit_data(config.data, data);
  if (config.adapter) {
    ContractFields adapter(fields, "adapter.", /*all=*/false);
    visit_adapter(*config.adapter, adapter);
  }
  if (config.family == ModelFamily::torch) fields["model.xxh3"] = config.torch.info.xxh3;
  return fields;
}

}  // namespace spillway
