#include "models/pictures/cnn_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/base/config_check.h"
#include "core/base/nearest.h"
#include "models/base/model_checks.h"

namespace spillway {
namespace {

constexpr const char* kPictures = "input";

std::string text(const CnnShape& shape) {
  return shape.is_flat ? fmt::format("{} features", shape.channels)
                       : fmt::format("{} x {} x {}", shape.channels, shape.height, shape.width);
}
std::string text(const CnnSize& size) { return fmt::format("{} x {}", size[0], size[1]); }

/// A layer's output: sources to concatenate.
struct Value {
  std::vector<CnnSource> sources;
  CnnShape shape;
  int readers = 0;
};

/// Follows the list of layers, front to back. A layer with a problem has no value, and those that
/// read it are not checked.
class GraphReader {
  using enum CnnLayerType;

 public:
  explicit GraphReader(const CnnConfig& config)
      : config_(config),
        layers_(config.all_layers()),
        pictures_{.sources = {{}},
                  .shape = {config.num_channels, config.image_size, config.image_size}} {}

  std::vector<CnnStep> read() {
    find_names();
    count_readers();
    values_.reserve(layers_.size());  // inputs_ has addresses of values
    for (at_ = 0; at_ < layers_.size(); ++at_) {
      values_.push_back(find_inputs() ? value() : std::nullopt);
      if (values_.back()) values_.back()->readers = readers_[at_];
    }
    check_end();
    check_.finish();
    add_end();
    return std::move(steps_);
  }

 private:
  const CnnLayerConfig& layer() const { return layers_[at_]; }

  /// The layers of a preset fit one another, but maybe not the picture.
  bool require(bool holds, const std::string& key, const std::string& problem) {
    if (config_.preset == CnnPreset::none)
      return check_.require(holds, fmt::format("layers[{}].{}", at_, key), problem);
    return check_.require(
        holds, "image_size",
        fmt::format("is {}, which does not fit model.preset: {} with model.width_mult: {}: {} of "
                    "layer '{}' {}",
                    config_.image_size, to_string(config_.preset), config_.width_mult, key,
                    layer().name, problem));
  }

  void find_names();
  void count_readers();
  /// The number of the layer `name`, -1 for the pictures; nothing for what is not before.
  std::optional<int> find(const std::string& name) const;
  void report_unknown(const std::string& name);
  /// Fills `inputs_`; false with a finding, or if an input has one.
  bool find_inputs();
  /// Of the current layer.
  std::optional<Value> value();
  std::optional<Value> passed_on() const;
  std::optional<Value> concatenated();
  std::optional<Value> sum();
  std::optional<Value> dropped_out();
  std::optional<Value> computed();
  std::optional<CnnShape> window_shape();
  void check_end();
  void add_end();

  bool has_one_input() {
    return require(inputs_.size() == 1, "inputs",
                   fmt::format("has {} layers, but a layer of type {} reads one; add a concat or "
                               "an add before it",
                               inputs_.size(), to_string(layer().type)));
  }
  bool has_several_inputs() {
    return require(inputs_.size() > 1, "inputs",
                   fmt::format("has {} layer, but a layer of type {} reads several; list them",
                               inputs_.size(), to_string(layer().type)));
  }
  bool has_pictures() {
    return require(!inputs_[0]->shape.is_flat, "inputs",
                   fmt::format("gives {}, but a layer of type {} reads pictures; remove the "
                               "flatten or linear layer before it",
                               text(inputs_[0]->shape), to_string(layer().type)));
  }
  /// The step that makes all of a value, if only the current layer reads it.
  CnnStep* step_read_once(const Value& value) {
    const CnnSource& source = value.sources.front();
    const bool is_plain = value.sources.size() == 1 && source.pool == CnnPool::none && !source.flat;
    if (!is_plain || source.step < 0 || value.readers > 1) return nullptr;
    CnnStep& step = steps_[static_cast<std::size_t>(source.step)];
    return step.dropout == 0 ? &step : nullptr;
  }
  Value add_step(CnnStep step) {
    const CnnShape out = step.out;
    steps_.push_back(std::move(step));
    return {.sources = {{.step = static_cast<int>(steps_.size()) - 1}}, .shape = out};
  }
  Value add_identity(const std::vector<const Value*>& terms) {
    CnnStep step{.layer = layer(), .terms = {}, .in = terms[0]->shape, .out = terms[0]->shape};
    for (const Value* term : terms) step.terms.push_back(term->sources);
    return add_step(std::move(step));
  }

  const CnnConfig& config_;
  std::vector<CnnLayerConfig> layers_;
  Value pictures_;
  ConfigCheck check_{"model."};
  std::map<std::string, int> numbers_;  // of layers, by name
  std::vector<int> readers_;            // by layer
  std::size_t at_ = 0;
  std::vector<std::optional<Value>> values_;
  std::vector<const Value*> inputs_;  // of the current layer
  std::vector<CnnStep> steps_;
};

void GraphReader::find_names() {
  const auto require_new = [&](const std::string& name, const char* key) {
    require(!name.empty() && name.find('/') == name.npos && name != kPictures, key,
            fmt::format("is '{}', must be a name without '/', other than '{}'", name, kPictures));
    const bool is_new = numbers_.try_emplace(name, static_cast<int>(at_)).second;
    require(is_new, key, fmt::format("is '{}', which another layer has; choose another", name));
  };
  for (at_ = 0; at_ < layers_.size(); ++at_) require_new(layer().name, "name");
  const std::map<std::string, int> of_layers = numbers_;
  for (at_ = 0; at_ < layers_.size(); ++at_) {
    if (!norm_name(layer()).empty()) require_new(norm_name(layer()), "batch_norm");
  }
  numbers_ = of_layers;
}

void GraphReader::count_readers() {
  readers_.resize(layers_.size());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if (layers_[l].inputs.empty()) layers_[l].inputs = {l == 0 ? kPictures : layers_[l - 1].name};
    for (const std::string& name : layers_[l].inputs) {
      const auto found = numbers_.find(name);
      if (found != numbers_.end()) ++readers_[static_cast<std::size_t>(found->second)];
    }
  }
}

std::optional<int> GraphReader::find(const std::string& name) const {
  if (name == kPictures) return -1;
  const auto found = numbers_.find(name);
  if (found == numbers_.end() || found->second >= static_cast<int>(at_)) return std::nullopt;
  return found->second;
}

void GraphReader::report_unknown(const std::string& name) {
  std::string problem = fmt::format(
      "names '{}', which is not before this layer; layers only read earlier ones, so change their "
      "order or the inputs",
      name);
  if (!numbers_.contains(name)) {
    std::vector<std::string> names{kPictures};
    for (std::size_t l = 0; l < at_; ++l) names.push_back(layers_[l].name);
    const std::string near = nearest(name, names);
    problem = fmt::format("names '{}', which is no layer; {}", name,
                          near.empty() ? "write the name of an earlier one, or 'input'"
                                       : fmt::format("did you mean '{}'?", near));
  }
  require(false, "inputs", problem);
}

bool GraphReader::find_inputs() {
  inputs_.clear();
  bool has_values = true;
  for (const std::string& name : layer().inputs) {
    const std::optional<int> number = find(name);
    if (!number) {
      report_unknown(name);
      has_values = false;
    } else if (*number < 0) {
      inputs_.push_back(&pictures_);
    } else {
      const auto& value = values_[static_cast<std::size_t>(*number)];
      has_values &= value.has_value();
      inputs_.push_back(value ? &*value : nullptr);
    }
  }
  return has_values;
}

std::optional<Value> GraphReader::value() {
  switch (layer().type) {
    case concat:
      return concatenated();
    case add:
      return sum();
    case dropout:
      return dropped_out();
    case flatten:
      return has_one_input() ? passed_on() : std::nullopt;
    case global_max_pool:
    case global_avg_pool:
      return has_one_input() && has_pictures() ? passed_on() : std::nullopt;
    default:
      return computed();
  }
}

std::optional<Value> GraphReader::passed_on() const {
  Value value = *inputs_[0];
  const bool is_flatten = layer().type == flatten;
  for (CnnSource& source : value.sources) {
    source.flat |= is_flatten;
    if (is_flatten || source.pool != CnnPool::none) continue;
    source.pool = layer().type == global_max_pool ? CnnPool::maximum : CnnPool::average;
  }
  value.shape = is_flatten ? CnnShape{.channels = value.shape.elements(), .is_flat = true}
                           : CnnShape{.channels = value.shape.channels};
  return value;
}

std::optional<Value> GraphReader::concatenated() {
  if (!has_several_inputs()) return std::nullopt;
  Value value{.sources = {}, .shape = inputs_[0]->shape};
  value.shape.channels = 0;
  for (const Value* input : inputs_) {
    CnnShape expected = value.shape;
    expected.channels = input->shape.channels;
    if (!require(input->shape == expected, "inputs",
                 fmt::format("give {} and {}; a concat needs pictures of one size, or features",
                             text(inputs_[0]->shape), text(input->shape)))) {
      return std::nullopt;
    }
    value.sources.insert(value.sources.end(), input->sources.begin(), input->sources.end());
    value.shape.channels += input->shape.channels;
  }
  return value;
}

std::optional<Value> GraphReader::sum() {
  if (!has_several_inputs()) return std::nullopt;
  for (const Value* input : inputs_) {
    if (!require(input->shape == inputs_[0]->shape, "inputs",
                 fmt::format("give {} and {}; an add needs values of one shape, such as those of "
                             "convolutions with the same out_channels and stride",
                             text(inputs_[0]->shape), text(input->shape)))) {
      return std::nullopt;
    }
  }
  // When the last of them is computed, the others exist.
  const auto last_source = [](const Value* value) {
    return std::ranges::max(value->sources, {}, &CnnSource::step).step;
  };
  const auto last = std::ranges::max_element(inputs_, {}, last_source);
  CnnStep* const step = step_read_once(**last);
  const bool joins = step != nullptr && step->layer.type == conv && step->terms.size() == 1 &&
                     step->layer.activation == CnnActivation::none;
  if (!joins) return add_identity(inputs_);
  for (const Value* input : inputs_) {
    if (input != *last) step->terms.push_back(input->sources);
  }
  step->layer.activation = layer().activation;
  return **last;
}

std::optional<Value> GraphReader::dropped_out() {
  if (!has_one_input()) return std::nullopt;
  if (CnnStep* const step = step_read_once(*inputs_[0])) {
    step->dropout = layer().p;
    return *inputs_[0];
  }
  Value value = add_identity(inputs_);
  steps_.back().dropout = layer().p;
  return value;
}

std::optional<CnnShape> GraphReader::window_shape() {
  const CnnShape& in = inputs_[0]->shape;
  const CnnLayerConfig& config = layer();
  const CnnSize &kernel = config.kernel_size, &padding = config.padding;
  const CnnSize size{in.height, in.width};
  CnnSize out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t padded = size[i] + 2 * padding[i];
    if (!require(kernel[i] <= padded, "kernel_size",
                 fmt::format("is {}, but it reads pictures of {} with padding of {}; use a smaller "
                             "kernel, more padding or larger pictures",
                             text(kernel), text(size), text(padding)))) {
      return std::nullopt;
    }
    if (!require(config.type == conv || 2 * padding[i] <= kernel[i], "padding",
                 fmt::format("is {}, must be at most half of kernel_size, which is {}",
                             text(padding), text(kernel)))) {
      return std::nullopt;
    }
    out[i] = (padded - kernel[i]) / config.stride[i] + 1;
  }
  return CnnShape{config.type == conv ? config.out_channels : in.channels, out[0], out[1]};
}

std::optional<Value> GraphReader::computed() {
  if (!has_one_input()) return std::nullopt;
  CnnLayerConfig& config = layers_[at_];
  for (std::size_t i = 0; i < config.stride.size(); ++i) {
    if (config.stride[i] == 0) config.stride[i] = config.type == conv ? 1 : config.kernel_size[i];
  }
  CnnStep step{.layer = config, .terms = {inputs_[0]->sources}, .in = inputs_[0]->shape};
  const bool is_linear = config.type == linear;
  auto row = static_cast<double>(step.in.elements());  // of the weights
  if (is_linear) {
    step.out = {.channels = config.out_features, .is_flat = true};
  } else {
    const std::optional<CnnShape> shape = has_pictures() ? window_shape() : std::nullopt;
    if (!shape) return std::nullopt;
    step.out = *shape;
    row = static_cast<double>(step.in.channels * config.kernel_size[0] * config.kernel_size[1]);
  }
  constexpr auto kMost = static_cast<double>(detail::kMaxTensorElements);
  const bool has_weights = is_linear || config.type == conv;
  if (!require((!has_weights || row * static_cast<double>(step.out.channels) <= kMost) &&
                   static_cast<double>(step.out.elements()) <= kMost,
               is_linear ? "out_features" : "out_channels",
               fmt::format("is too large: a tensor of the layer has more than {} elements; choose "
                           "a smaller one",
                           detail::kMaxTensorElements))) {
    return std::nullopt;
  }
  return add_step(std::move(step));
}

void GraphReader::check_end() {
  for (at_ = 0; at_ + 1 < layers_.size(); ++at_) {
    require(readers_[at_] > 0, "name",
            fmt::format("is '{}', which no layer reads; name it in the inputs of another layer, or "
                        "remove it",
                        layer().name));
  }
  if (!values_.back()) return;
  const std::int64_t made = values_.back()->shape.elements();
  require(made == config_.num_classes, layer().type == linear ? "out_features" : "type",
          fmt::format("makes {} values, must make one for each of model.num_classes, {}; end with "
                      "a linear layer of {} out_features",
                      made, config_.num_classes, config_.num_classes));
}

/// The last step computes the loss too.
void GraphReader::add_end() {
  const Value& last = *values_.back();
  const CnnSource& source = last.sources.front();
  const bool is_last_step = last.sources.size() == 1 && source.pool == CnnPool::none &&
                            source.step >= 0 && source.step + 1 == static_cast<int>(steps_.size());
  if (!is_last_step) add_identity({&last});
}

std::int64_t most_elements(const CnnConfig& config, const std::vector<CnnStep>& steps) {
  std::int64_t most = config.num_channels * config.image_size * config.image_size + 1;
  for (const CnnStep& step : steps) {
    most = std::max({most, step.in.elements(), step.out.elements()});
  }
  return most;
}

}  // namespace

std::string norm_name(const CnnLayerConfig& layer) {
  if (layer.type != CnnLayerType::conv || layer.batch_norm == "false") return "";
  return layer.batch_norm == "true" ? layer.name + ".bn" : layer.batch_norm;
}

std::vector<CnnStep> cnn_steps(const CnnConfig& config) { return GraphReader(config).read(); }

void check_virtual_node(const CnnConfig& config, const std::vector<CnnStep>& steps,
                        std::int64_t vn_size) {
  detail::check_vn_size(vn_size, most_elements(config, steps));
  for (const CnnStep& step : steps) {
    if (norm_name(step.layer).empty() || vn_size * step.out.area() > 1) continue;
    throw ConfigError(
        "train.batch_size", 0,
        fmt::format("makes virtual nodes of 1 sample, whose channels have only 1 value in layer "
                    "'{}', and a single value has no variance; raise it or lower "
                    "train.virtual_nodes",
                    step.layer.name));
  }
}

}  // namespace spillway
