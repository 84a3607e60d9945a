#include "runs/config/config.h"

#include <algorithm>

#include "runs/config/yaml_path.h"
#include "runs/config/yaml_reader.h"
#include "runs/text/safe_name.h"

namespace spillway {
namespace {

// Far above any real model, and far below where products of two overflow.
constexpr IntRange kSize{1, 1 << 24};
constexpr IntRange kSizeOrAuto{0, 1 << 24};
constexpr IntRange kSteps{1, 1'000'000'000'000};

void read_fault(YamlReader fault, DeviceFault& config) {
  std::string kind = kFaultNames[0];
  std::int64_t after_ops = 0;
  fault.read_choice("kind", kind, {kFaultNames.begin(), kFaultNames.end()});
  fault.read("after_ops", after_ops, {0, 1'000'000'000'000});
  fault.finish();
  config.kind =
      static_cast<DeviceFault::Kind>(std::ranges::find(kFaultNames, kind) - kFaultNames.begin());
  config.after_ops = static_cast<std::uint64_t>(after_ops);
}

void read_devices(YamlReader& root, std::vector<DeviceConfig>& devices) {
  root.require("devices", "list at least one, such as [{kind: cpu, memory: 1GiB}]");
  for (auto& item : root.items("devices")) {
    DeviceConfig device;
    item.read_choice("kind", device.kind, {"cpu", "cuda"});
    item.read_size("memory", device.memory, 4_KiB, Bytes{1} << 44);
    item.read("index", device.index, {0, 1023});
    item.read_rate("link", device.link_bytes_per_s, 1_MiB);
    item.read("slowdown", device.slowdown, {.min = 1, .max = 1000});
    read_fault(item.section("fault"), device.fault);
    item.require("memory", "write the most bytes it may hold, such as 1GiB");
    item.finish();
    devices.push_back(std::move(device));
  }
}

void read_mlp(YamlReader& model, MlpConfig& mlp) {
  model.read("num_hidden_layers", mlp.num_hidden_layers, {1, 1024});
  model.read("hidden_size", mlp.hidden_size, kSize);
  model.read_choice("hidden_act", mlp.hidden_act, {"relu", "gelu", "tanh"});
  model.read("dropout", mlp.dropout, {.min = 0, .max = 1, .below_max = true});
  model.read_texts("freeze", mlp.freeze, /*may_be_empty=*/true);
}

void read_resnet(YamlReader& model, ResnetConfig& resnet) {
  model.read_integers("hidden_sizes", resnet.hidden_sizes, {1, 1 << 15});
  model.read_integers("depths", resnet.depths, {1, 1024});
  model.read("dropout", resnet.dropout, {.min = 0, .max = 1, .below_max = true});
  model.read("batch_norm_eps", resnet.batch_norm_eps, {.min = 0});
  model.read("batch_norm_momentum", resnet.batch_norm_momentum, {.min = 0, .max = 1});
  model.read_texts("freeze", resnet.freeze, /*may_be_empty=*/true);
}

void read_gpt(YamlReader& model, GptConfig& gpt, bool of_bytes) {
  // Bytes are tokens 0..255.
  model.read("vocab_size", gpt.vocab_size, {of_bytes ? 256 : 1, kSize.max});
  model.read("num_hidden_layers", gpt.num_hidden_layers, {1, 1024});
  model.read("hidden_size", gpt.hidden_size, kSize);
  model.read("num_attention_heads", gpt.num_attention_heads, kSize);
  model.read("intermediate_size", gpt.intermediate_size, kSizeOrAuto);
  model.read("max_position_embeddings", gpt.max_position_embeddings, kSize);
  model.read("dropout", gpt.dropout, {.min = 0, .max = 1, .below_max = true});
  model.read("initializer_range", gpt.initializer_range, {.min = 0});
  model.read("layer_norm_eps", gpt.layer_norm_eps, {.min = 0});
  model.read_texts("freeze", gpt.freeze, /*may_be_empty=*/true);
}

/// After the data. The keys of the other families are unknown ones.
void read_model(YamlReader model, RunConfig& config) {
  model.read_choice("family", config.family, {"gpt", "mlp", "resnet"});
  if (config.family == "mlp") {
    read_mlp(model, config.mlp);
  } else if (config.family == "resnet") {
    read_resnet(model, config.resnet);
  } else {
    read_gpt(model, config.gpt, config.data.format == "bytes");
  }
  model.finish();
}

void read_data(YamlReader data, DataConfig& config) {
  data.read_choice("format", config.format, {"bytes", "tokens", "digits"});
  if (config.format == "tokens") data.read_choice("dtype", config.dtype, {"uint16", "uint32"});
  if (config.format == "digits") data.read_choice("augment", config.augment, {"none", "shift"});
  data.require("path", "write a file or a folder, or a list of them");
  data.read_texts("path", config.paths);
  data.read("eval_fraction", config.eval_fraction, {.min = 0, .max = 1, .below_max = true});
  data.finish();
}

AutoscaleRule read_rule(YamlReader reader, const YamlNode& node) {
  AutoscaleRule rule;
  if (node.kind != YamlNode::Kind::scalar) {
    reader.require("rule", "write one of throughput, linear, stepped, straggler");
  }
  reader.read_text("rule", rule.rule);
  for (const YamlNode& child : node.children) {
    if (child.key != "rule") reader.read(child.key.c_str(), rule.params[child.key], NumberRange{});
  }
  return rule;
}

/// One rule, or a list of them.
void read_autoscale(YamlReader& train, std::vector<AutoscaleRule>& rules) {
  const YamlNode* node = train.raw("autoscale");
  if (node == nullptr) return;
  rules.clear();
  if (node->kind != YamlNode::Kind::list) {
    rules = {read_rule(train.section("autoscale"), *node)};
  } else if (!node->children.empty()) {
    const auto readers = train.items("autoscale");
    for (std::size_t i = 0; i < readers.size(); ++i) {
      rules.push_back(read_rule(readers[i], node->children[i]));
    }
  }
}

void read_train(YamlReader train, TrainConfig& config) {
  train.read("batch_size", config.batch_size, kSize);
  train.read("virtual_nodes", config.virtual_nodes, {1, 1 << 16});
  train.read("reduction_groups", config.reduction_groups, {0, 1 << 16});
  train.read("lanes", config.lanes, {1, 1 << 16}, "auto", kAutoLanes);
  train.read("max_lanes", config.max_lanes, {0, 1 << 16});
  read_autoscale(train, config.autoscale);
  train.read("priority", config.priority, {1, 100});
  train.read("max_steps", config.max_steps, kSteps);
  train.read_choice("dtype", config.dtype, {"fp32", "bf16"});
  train.read_choice("gradient_dtype", config.gradient_dtype, {"fp32", "bf16"});
  train.read_choice("optimizer", config.optimizer, {"adamw", "sgd"});
  train.read("learning_rate", config.learning_rate, {.min = 0});
  train.read("weight_decay", config.weight_decay, {.min = 0});
  train.read("momentum", config.momentum, {.min = 0, .max = 1, .below_max = true});
  train.read("adam_beta1", config.adam_beta1, {.min = 0, .max = 1, .below_max = true});
  train.read("adam_beta2", config.adam_beta2, {.min = 0, .max = 1, .below_max = true});
  train.read("adam_epsilon", config.adam_epsilon, {.min = 0});
  train.read("max_grad_norm", config.max_grad_norm, {.min = 0});
  train.read_choice("lr_scheduler_type", config.lr_scheduler_type,
                    {"cosine", "linear", "constant"});
  train.read("warmup_ratio", config.warmup_ratio, {.min = 0, .max = 1, .below_max = true});
  train.read("eval_steps", config.eval_steps, {0, kSteps.max});
  train.read("eval_batches", config.eval_batches, kSize);
  train.finish();
}

void read_scheduling(YamlReader scheduling, RunConfig& config) {
  scheduling.read_choice("policy", config.session.policy,
                         {"lrtf", "srtf", "fifo", "round_robin", "random"});
  scheduling.read_choice("sharing", config.session.sharing, {"none", "priority", "wfs", "fill"});
  scheduling.read_choice("order", config.train.order, {"auto", "shard_major", "vn_major"});
  scheduling.read("double_buffer", config.session.double_buffer);
  scheduling.read("device_timeout", config.session.device_timeout_s, {.min = 1, .max = 86400});
  scheduling.finish();
}

void read_checkpoint(YamlReader checkpoint, CheckpointConfig& config) {
  checkpoint.read("every_steps", config.every_steps, {0, kSteps.max});
  checkpoint.read("every_s", config.every_s, {.min = 0});
  checkpoint.read("keep", config.keep, {0, 1000});
  checkpoint.finish();
}

/// The key whose value is written again as the document has it where `swept` is swept. What other
/// keys a section has depends on some keys, and a list of one may be written as its item.
std::string base_key(const std::string& swept) {
  if (swept == "model.family") return "model";
  if (swept == "data.format") return "data";
  if (lies_in(swept, "train.autoscale")) return "train.autoscale";
  return swept.substr(0, swept.find('['));
}

void find_bases(const YamlNode& tree, SweepConfig& sweep) {
  for (SweepParameter& parameter : sweep.parameters) {
    const std::string key = base_key(parameter.key);
    if (key.empty()) continue;  // names no place
    const YamlNode* node = find_at(tree, key);
    parameter.base = {key, node != nullptr ? std::optional(*node) : std::nullopt};
  }
}

}  // namespace

RunConfig read_config(const YamlNode& tree, YamlSchema& schema) {
  RunConfig config;
  YamlReader root(schema, &tree, "");
  root.read_text("name", config.name);
  config.output_dir = "runs/" + safe_name(config.name);
  root.read_text("output_dir", config.output_dir);
  root.read_choice("resume", config.resume, {"never", "auto"});
  root.read("seed", config.train.seed);
  read_devices(root, config.session.devices);
  root.read_size("host_memory", config.session.host_memory);
  root.read("activation_share", config.session.activation_share,
            {.min = 0, .max = kMostActivations});
  root.read_path("home_path", config.session.home_path);
  root.read_path("data_root", config.data_root);
  read_data(root.section("data"), config.data);
  read_model(root.section("model"), config);
  read_train(root.section("train"), config.train);
  read_scheduling(root.section("scheduling"), config);
  read_checkpoint(root.section("checkpoint"), config.checkpoint);
  config.sweep.seed = config.train.seed;
  read_sweep(root.section("sweep"), schema, config.sweep, config.session.early_terminate);
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

std::vector<std::string> config_keys() {
  Findings ignored;
  YamlSchema schema(ignored);
  // Which keys there are depends on the family of the model and on the format of the data.
  for (const char* kind : {"{model: {family: gpt}, data: {format: tokens}}",
                           "{model: {family: mlp}, data: {format: digits}}",
                           "{model: {family: resnet}, data: {format: digits}}"}) {
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
