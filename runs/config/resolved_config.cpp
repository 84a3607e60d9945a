#include <utility>

#include "runs/config/config.h"
#include "runs/config/sweep_values.h"
#include "runs/config/yaml_path.h"
#include "runs/text/format.h"

namespace spillway {
namespace {

using Kind = YamlNode::Kind;

YamlNode scalar(std::string text) { return {.kind = Kind::scalar, .text = std::move(text)}; }

/// "12MiB" where that is exact, else a plain number.
std::string exact_size(Bytes bytes) {
  if (bytes % 1_GiB == 0) return std::to_string(bytes / 1_GiB) + "GiB";
  if (bytes % 1_MiB == 0) return std::to_string(bytes / 1_MiB) + "MiB";
  if (bytes % 1_KiB == 0) return std::to_string(bytes / 1_KiB) + "KiB";
  return std::to_string(bytes);
}

/// Adds the keys of one map in order.
class MapWriter {
 public:
  void put(std::string key, YamlNode value) {
    value.key = std::move(key);
    map_.children.push_back(std::move(value));
  }
  void write(const char* key, const std::string& value) { put(key, scalar(value)); }
  void write(const char* key, const char* value) = delete;
  void write(const char* key, double value) { put(key, scalar(format_number(value))); }
  void write(const char* key, bool value) { put(key, scalar(value ? "true" : "false")); }
  template <typename Int>
  void write(const char* key, Int value) {
    put(key, scalar(std::to_string(value)));
  }
  YamlNode take() { return std::move(map_); }

 private:
  YamlNode map_{.kind = Kind::map};
};

YamlNode list_of(std::vector<YamlNode> items) {
  return {.kind = Kind::list, .children = std::move(items)};
}

YamlNode list_of_texts(const std::vector<std::string>& texts) {
  std::vector<YamlNode> items;
  for (const auto& text : texts) items.push_back(scalar(text));
  return list_of(std::move(items));
}

YamlNode list_of_integers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> texts;
  for (const auto value : values) texts.push_back(std::to_string(value));
  return list_of_texts(texts);
}

void write_cpu_device(MapWriter& out, const DeviceConfig& device) {
  const Bytes link = device.link_bytes_per_s;
  out.write("link", link == 0 ? std::string("0") : exact_size(link) + "/s");
  out.write("slowdown", device.slowdown);
  MapWriter fault;
  fault.write("kind", std::string(kFaultNames.at(static_cast<std::size_t>(device.fault.kind))));
  fault.write("after_ops", device.fault.after_ops);
  out.put("fault", fault.take());
}

YamlNode devices_node(const std::vector<DeviceConfig>& devices) {
  std::vector<YamlNode> items;
  for (const auto& device : devices) {
    MapWriter out;
    out.write("kind", device.kind);
    out.write("memory", exact_size(device.memory));
    if (device.kind == "cuda") {
      out.write("index", device.index);
    } else {
      write_cpu_device(out, device);
    }
    items.push_back(out.take());
  }
  return list_of(std::move(items));
}

void write_mlp(MapWriter& out, const MlpConfig& mlp) {
  out.write("num_hidden_layers", mlp.num_hidden_layers);
  out.write("hidden_size", mlp.hidden_size);
  out.write("hidden_act", mlp.hidden_act);
  out.write("dropout", mlp.dropout);
  out.put("freeze", list_of_texts(mlp.freeze));
}

void write_resnet(MapWriter& out, const ResnetConfig& resnet) {
  out.put("hidden_sizes", list_of_integers(resnet.hidden_sizes));
  out.put("depths", list_of_integers(resnet.depths));
  out.write("dropout", resnet.dropout);
  out.write("batch_norm_eps", resnet.batch_norm_eps);
  out.write("batch_norm_momentum", resnet.batch_norm_momentum);
  out.put("freeze", list_of_texts(resnet.freeze));
}

void write_gpt(MapWriter& out, const GptConfig& gpt) {
  out.write("vocab_size", gpt.vocab_size);
  out.write("num_hidden_layers", gpt.num_hidden_layers);
  out.write("hidden_size", gpt.hidden_size);
  out.write("num_attention_heads", gpt.num_attention_heads);
  out.write("intermediate_size", gpt.intermediate_size);
  out.write("max_position_embeddings", gpt.max_position_embeddings);
  out.write("dropout", gpt.dropout);
  out.write("initializer_range", gpt.initializer_range);
  out.write("layer_norm_eps", gpt.layer_norm_eps);
  out.put("freeze", list_of_texts(gpt.freeze));
}

YamlNode model_node(const RunConfig& config) {
  MapWriter out;
  out.write("family", config.family);
  if (config.family == "mlp") {
    write_mlp(out, config.mlp);
  } else if (config.family == "resnet") {
    write_resnet(out, config.resnet);
  } else {
    write_gpt(out, config.gpt);
  }
  return out.take();
}

YamlNode data_node(const DataConfig& data) {
  MapWriter out;
  out.write("format", data.format);
  if (data.format == "tokens") out.write("dtype", data.dtype);
  if (data.format == "digits") out.write("augment", data.augment);
  out.put("path", data.paths.size() == 1 ? scalar(data.paths[0]) : list_of_texts(data.paths));
  out.write("eval_fraction", data.eval_fraction);
  return out.take();
}

YamlNode autoscale_node(const std::vector<AutoscaleRule>& rules) {
  std::vector<YamlNode> items;
  for (const auto& rule : rules) {
    MapWriter out;
    out.write("rule", rule.rule);
    for (const auto& [name, value] : rule.params) out.write(name.c_str(), value);
    items.push_back(out.take());
  }
  return list_of(std::move(items));
}

YamlNode train_node(const TrainConfig& train) {
  MapWriter out;
  out.write("batch_size", train.batch_size);
  out.write("virtual_nodes", train.virtual_nodes);
  out.write("reduction_groups", train.reduction_groups);
  out.write("lanes", train.lanes == kAutoLanes ? "auto" : std::to_string(train.lanes));
  out.write("max_lanes", train.max_lanes);
  out.put("autoscale", autoscale_node(train.autoscale));
  out.write("priority", train.priority);
  out.write("max_steps", train.max_steps);
  out.write("dtype", train.dtype);
  out.write("gradient_dtype", train.gradient_dtype);
  out.write("optimizer", train.optimizer);
  out.write("learning_rate", train.learning_rate);
  out.write("weight_decay", train.weight_decay);
  out.write("momentum", train.momentum);
  out.write("adam_beta1", train.adam_beta1);
  out.write("adam_beta2", train.adam_beta2);
  out.write("adam_epsilon", train.adam_epsilon);
  out.write("max_grad_norm", train.max_grad_norm);
  out.write("lr_scheduler_type", train.lr_scheduler_type);
  out.write("warmup_ratio", train.warmup_ratio);
  out.write("eval_steps", train.eval_steps);
  out.write("eval_batches", train.eval_batches);
  return out.take();
}

YamlNode scheduling_node(const RunConfig& config) {
  MapWriter out;
  out.write("policy", config.session.policy);
  out.write("sharing", config.session.sharing);
  out.write("order", config.train.order);
  out.write("double_buffer", config.session.double_buffer);
  out.write("device_timeout", config.session.device_timeout_s);
  return out.take();
}

YamlNode checkpoint_node(const CheckpointConfig& checkpoint) {
  MapWriter out;
  out.write("every_steps", checkpoint.every_steps);
  out.write("every_s", checkpoint.every_s);
  out.write("keep", checkpoint.keep);
  return out.take();
}

YamlNode parameter_node(const SweepParameter& parameter) {
  using Shape = Distribution::Shape;
  const Distribution& distribution = parameter.distribution;
  MapWriter out;
  if (distribution.shape == Shape::constant) {
    out.put("value", parameter.values.empty() ? YamlNode{} : parameter.values[0]);
    return out.take();
  }
  if (distribution.shape == Shape::categorical) {
    out.put("values", list_of(parameter.values));
    std::vector<YamlNode> probabilities;
    for (double p : parameter.probabilities) probabilities.push_back(scalar(format_number(p)));
    if (!probabilities.empty()) out.put("probabilities", list_of(std::move(probabilities)));
    return out.take();
  }
  const auto write = [&](const char* key, double value) { out.write(key, number_text(value)); };
  out.write("distribution", std::string(distribution.name));
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

YamlNode early_terminate_node(const EarlyTerminate& early) {
  MapWriter out;
  out.write("type", std::string("hyperband"));
  out.write("min_iter", early.min_iter);
  out.write("eta", early.eta);
  return out.take();
}

YamlNode sweep_node(const SweepConfig& sweep, const std::optional<EarlyTerminate>& early) {
  MapWriter metric, parameters, out;
  metric.write("name", sweep.metric.name);
  metric.write("goal", sweep.metric.goal);
  for (const auto& parameter : sweep.parameters)
    parameters.put(parameter.key, parameter_node(parameter));
  out.write("method", sweep.method);
  out.write("run_cap", sweep.run_cap);
  out.write("seed", sweep.seed);
  out.put("metric", metric.take());
  if (early) out.put("early_terminate", early_terminate_node(*early));
  out.put("parameters", parameters.take());
  return out.take();
}

/// Swept keys hold the values of one trial, which mean nothing to the others.
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

}  // namespace

std::string to_yaml(const RunConfig& config) {
  MapWriter out;
  out.write("name", config.name);
  out.write("output_dir", config.output_dir);
  out.write("resume", config.resume);
  out.write("seed", config.train.seed);
  out.put("devices", devices_node(config.session.devices));
  out.write("host_memory", exact_size(config.session.host_memory));
  out.write("activation_share", config.session.activation_share);
  out.write("home_path", config.session.home_path.string());
  out.write("data_root", config.data_root.string());
  out.put("model", model_node(config));
  out.put("data", data_node(config.data));
  out.put("train", train_node(config.train));
  out.put("scheduling", scheduling_node(config));
  out.put("checkpoint", checkpoint_node(config.checkpoint));
  out.put("sweep", sweep_node(config.sweep, config.session.early_terminate));
  YamlNode root = out.take();
  restore_bases(root, config.sweep);
  return to_yaml(root);
}

std::map<std::string, std::string> contract_fields(const RunConfig& config) {
  std::map<std::string, std::string> fields{{"data.format", config.data.format},
                                            {"data.augment", config.data.augment}};
  for (const YamlNode& value : model_node(config).children) {
    std::string text = value.kind == Kind::scalar ? value.text : to_yaml(value);
    if (text.ends_with('\n')) text.pop_back();
    fields["model." + value.key] = text;
  }
  return fields;
}

}  // namespace spillway
