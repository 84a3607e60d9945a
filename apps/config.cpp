#include "apps/config.h"

#include "apps/safe_name.h"
#include "apps/yaml_reader.h"

namespace spillway {
namespace {

// Far above any real model, and far below where products of two overflow.
constexpr IntRange kSize{1, 1 << 24};
constexpr IntRange kSizeOrAuto{0, 1 << 24};
constexpr IntRange kSteps{1, 1'000'000'000'000};

void read_devices(YamlReader& root, std::vector<DeviceConfig>& devices) {
  root.require("devices", "list at least one, such as [{kind: cpu, memory: 1GiB}]");
  for (auto& item : root.items("devices")) {
    DeviceConfig device;
    item.read_choice("kind", device.kind, {"cpu"});
    item.read_size("memory", device.memory);
    item.require("memory", "write the most bytes it may hold, such as 1GiB");
    item.finish();
    devices.push_back(std::move(device));
  }
}

void read_model(YamlReader model, RunConfig& config) {
  auto& gpt = config.model;
  model.read_choice("family", config.family, {"gpt"});
  // Bytes are tokens 0..255.
  model.read("vocab_size", gpt.vocab_size, {256, kSize.max});
  model.read("num_hidden_layers", gpt.num_hidden_layers, {1, 1 << 16});
  model.read("hidden_size", gpt.hidden_size, kSize);
  model.read("num_attention_heads", gpt.num_attention_heads, kSize);
  model.read("intermediate_size", gpt.intermediate_size, kSizeOrAuto);
  model.read("max_position_embeddings", gpt.max_position_embeddings, kSize);
  model.read("dropout", gpt.dropout, {.min = 0, .max = 1, .below_max = true});
  model.read("initializer_range", gpt.initializer_range, {.min = 0});
  model.read("layer_norm_eps", gpt.layer_norm_eps, {.min = 0});
  model.finish();
}

void read_data(YamlReader data, DataConfig& config) {
  data.read_choice("format", config.format, {"bytes"});
  data.require("path", "write a file or a folder, or a list of them");
  data.read_texts("path", config.paths);
  data.read("eval_fraction", config.eval_fraction, {.min = 0, .max = 1, .below_max = true});
  data.finish();
}

void read_train(YamlReader train, TrainConfig& config) {
  train.read("batch_size", config.batch_size, kSize);
  train.read("virtual_nodes", config.virtual_nodes, kSize);
  train.read("reduction_groups", config.reduction_groups, kSizeOrAuto);
  train.read("lanes", config.lanes, {1, 1 << 16});
  train.read("max_steps", config.max_steps, kSteps);
  train.read_choice("optimizer", config.optimizer, {"adamw"});
  train.read("learning_rate", config.learning_rate, {.min = 0});
  train.read("weight_decay", config.weight_decay, {.min = 0});
  train.read("adam_beta1", config.adam_beta1, {.min = 0, .max = 1, .below_max = true});
  train.read("adam_beta2", config.adam_beta2, {.min = 0, .max = 1, .below_max = true});
  train.read("adam_epsilon", config.adam_epsilon, {.min = 0});
  train.read("max_grad_norm", config.max_grad_norm, {.min = 0});
  train.read_choice("lr_scheduler_type", config.lr_scheduler_type, {"cosine"});
  train.read("warmup_ratio", config.warmup_ratio, {.min = 0, .max = 1});
  train.read("eval_steps", config.eval_steps, {0, kSteps.max});
  train.read("eval_batches", config.eval_batches, kSize);
  train.finish();
}

void read_scheduling(YamlReader scheduling, RunConfig& config) {
  scheduling.read_choice("policy", config.session.policy, {"lrtf", "fifo"});
  scheduling.read_choice("order", config.train.order, {"auto", "shard_major", "vn_major"});
  scheduling.read("double_buffer", config.session.double_buffer);
  scheduling.finish();
}

SweepParameter read_parameter(const YamlNode& entry, YamlSchema& schema) {
  const std::string path = "sweep.parameters." + entry.key;
  SweepParameter parameter{.key = entry.key, .line = entry.line};
  YamlReader reader(schema, &entry, path);
  reader.require("values", "list them, such as {values: [1e-3, 1e-2]}");
  const auto* values = reader.raw("values");
  reader.finish();
  if (values == nullptr) return parameter;
  if (values->kind == YamlNode::Kind::list) parameter.values = values->children;
  if (parameter.values.empty())
    schema.findings().add(path + ".values", values->line, "write a list of at least one value");
  return parameter;
}

void read_sweep(YamlReader sweep, YamlSchema& schema, SweepConfig& config) {
  sweep.read_choice("method", config.method, {"grid"});
  auto metric = sweep.section("metric");
  metric.read_choice("name", config.metric.name, {"eval_loss", "final_loss"});
  metric.read_choice("goal", config.metric.goal, {"minimize", "maximize"});
  metric.finish();
  const auto* parameters = sweep.raw("parameters");
  sweep.finish();
  if (parameters == nullptr || parameters->kind == YamlNode::Kind::null) return;
  if (parameters->kind != YamlNode::Kind::map)
    schema.findings().add("sweep.parameters", parameters->line,
                          "write keys, each with its values: {train.learning_rate: {values: "
                          "[1e-3, 1e-2]}}");
  for (const auto& entry : parameters->children) {
    if (parameters->kind == YamlNode::Kind::map)
      config.parameters.push_back(read_parameter(entry, schema));
  }
}

}  // namespace

RunConfig read_config(const YamlNode& tree, Findings& findings) {
  RunConfig config;
  YamlSchema schema(findings);
  YamlReader root(schema, &tree, "");
  root.read_text("name", config.name);
  config.output_dir = "runs/" + safe_name(config.name);
  root.read_text("output_dir", config.output_dir);
  root.read("seed", config.train.seed);
  read_devices(root, config.session.devices);
  root.read_size("host_memory", config.session.host_memory);
  read_model(root.section("model"), config);
  read_data(root.section("data"), config.data);
  read_train(root.section("train"), config.train);
  read_scheduling(root.section("scheduling"), config);
  read_sweep(root.section("sweep"), schema, config.sweep);
  root.finish();
  schema.report_unknown();
  return config;
}

std::string key_of_field(const std::string& field) {
  if (field == "train.seed") return "seed";
  if (field == "train.order") return "scheduling.order";
  return field;
}

}  // namespace spillway
