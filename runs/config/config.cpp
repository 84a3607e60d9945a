#include "runs/config/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "runs/config/run_fields.h"
#include "runs/config/yaml_path.h"
#include "runs/config/yaml_reader.h"
#include "runs/text/safe_name.h"

namespace spillway {
namespace {

/// The key to restore in config.yaml if `swept` is swept: the whole section if the swept key
/// decides its keys, or if the list may be written as its only item.
std::string base_key(const std::string& swept) {
  if (swept == "model.family") return "model";
  if (swept == "data.format") return "data";
  if (lies_in(swept, "train.autoscale")) return "train.autoscale";
  return swept.substr(0, swept.find('['));
}

void find_bases(const YamlNode& tree, SweepConfig& sweep) {
  for (SweepParameter& parameter : sweep.parameters) {
    const std::string key = base_key(parameter.key);
    if (key.empty()) continue;  // not a path
    const YamlNode* node = find_at(tree, key);
    parameter.base = {key, node != nullptr ? std::optional(*node) : std::nullopt};
  }
}

/// Bytes as tokens 0 to 255.
void check_vocabulary(const RunConfig& config, const YamlNode& tree, Findings& findings) {
  constexpr std::int64_t kBytes = 256;
  const char* key = "model.vocab_size";
  const bool has_vocabulary =
      config.family == ModelFamily::gpt || config.family == ModelFamily::rnn;
  const bool reads_bytes = has_vocabulary && config.data.format == DataFormat::bytes;
  if (!reads_bytes || config.vocab_size() >= kBytes || findings.concern(key)) return;
  findings.add(key, find_at(tree, key)->line,
               fmt::format("is {}, must be at least {} with data.format: bytes",
                           config.vocab_size(), kBytes));
}

/// Of two keys that say the same in two ways, the document may have one.
void check_alternatives(RunConfig& config, const YamlNode& tree, Findings& findings) {
  const YamlNode* fraction = find_at(tree, "data.eval_fraction");
  if (!config.data.eval_paths.empty()) {
    if (fraction != nullptr && config.data.eval_fraction > 0) {
      findings.add("data.eval_fraction", fraction->line,
                   "cannot be used with data.eval_path; remove one of them");
    }
    config.data.eval_fraction = 0;
  }
  const YamlNode* epochs = find_at(tree, "train.num_train_epochs");
  if (epochs != nullptr && find_at(tree, "train.max_steps") != nullptr) {
    findings.add("train.num_train_epochs", epochs->line,
                 "cannot be used with train.max_steps; remove one of them");
  }
}

void read_adapter(YamlReader& root, RunConfig& config, Findings& findings) {
  const YamlNode* node = root.raw("adapter");
  const bool is_given = node != nullptr && node->kind != YamlNode::Kind::null;
  AdapterConfig adapter;
  root.section("adapter", [&](YamlReader& v) {
    visit_adapter(adapter, v);
    if (is_given)
      v.require_key("target_modules",
                    "name linear layers, such as [q_proj, v_proj], or all-linear");
  });
  if (!is_given) return;
  config.adapter = adapter;
  if (config.family == ModelFamily::torch || findings.concern("model.family")) return;
  findings.add(
      "adapter", node->line,
      fmt::format("needs model.family: torch, but the family is {}; export a model with spillway "
                  "import, or remove adapter",
                  to_string(config.family)));
}

}  // namespace

RunConfig read_config(const YamlNode& tree, YamlSchema& schema) {
  RunConfig config;
  YamlReader root(schema, &tree, "");
  visit_run(config, root);
  read_adapter(root, config, schema.findings());
  if (config.output_dir.empty()) config.output_dir = "runs/" + safe_name(config.name);
  check_vocabulary(config, tree, schema.findings());
  check_alternatives(config, tree, schema.findings());
  config.sweep.seed = config.train.seed;
  root.section("sweep", [&](YamlReader& sweep) {
    read_sweep(sweep, schema, config.sweep, config.session.early_terminate);
  });
  root.finish();
  find_bases(tree, config.sweep);
  return config;
}

RunConfig read_config(const YamlNode& tree, Findings& findings) {
  YamlSchema schema(findings);
  RunConfig config = read_config(tree, schema);
  schema.report_unknown();
  return config;
}

void remove_alternative(YamlNode& tree, std::string_view key) {
  if (key == "train.max_steps") remove_at(tree, "train.num_train_epochs");
  if (key == "train.num_train_epochs") remove_at(tree, "train.max_steps");
}

std::vector<std::string> config_keys() {
  Findings ignored;
  YamlSchema schema(ignored);
  // The keys depend on the model family and on the data format.
  for (const char* kind : {"{model: {family: gpt}, data: {format: tokens}}",
                           "{model: {family: mlp}, data: {format: digits}}",
                           "{model: {family: resnet}, data: {format: digits}}",
                           "{model: {family: cnn}, data: {format: digits}}",
                           "{model: {family: rnn}, data: {format: tokens}}",
                           "{model: {family: torch}, data: {format: tensors}}"}) {
    read_config(parse_yaml(kind), schema);
  }
  std::vector<std::string> keys;
  for (const auto& key : schema.known()) {
    const auto is_inside = [&](const auto& other) { return other != key && lies_in(other, key); };
    const bool is_listed = std::ranges::find(keys, key) != keys.end();
    if (!is_listed && std::ranges::none_of(schema.known(), is_inside)) keys.push_back(key);
  }
  return keys;
}

std::string key_of_field(const std::string& field) {
  if (field == "train.seed") return "seed";
  if (field == "train.order") return "scheduling.order";
  return field;
}

}  // namespace spillway
