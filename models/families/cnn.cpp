#include "models/families/cnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "models/base/batch_norm.h"
#include "models/base/freeze.h"
#include "models/base/model_checks.h"
#include "models/families/cnn_graph.h"
#include "models/families/cnn_layers.h"
#include "spillway/error.h"
#include "spillway/loss.h"
#include "spillway/model_builder.h"

namespace spillway {
namespace {

/// The edges that a layer reads, and how.
struct Reading {
  std::vector<int> inputs;
  std::vector<std::vector<CnnPart>> terms;
};

/// A layer of the model: a step, or a part of it.
struct Place {
  std::string name;
  int piece = 0, pieces = 1;
  bool is_end = false;  ///< of the step
};

/// Standard deviation of the initial weights. Source: He et al., "Delving deep into rectifiers",
/// 2015.
double stddev_of(const CnnStep& step) {
  const CnnLayerConfig& layer = step.layer;
  const bool is_conv = layer.type == CnnLayerType::conv;
  const auto area = static_cast<double>(layer.kernel_size[0] * layer.kernel_size[1]);
  if (!norm_name(layer).empty())
    return std::sqrt(2 / (static_cast<double>(step.out.channels) * area));
  const bool drops_half =
      layer.activation == CnnActivation::relu || layer.activation == CnnActivation::gelu;
  const double inputs = is_conv ? static_cast<double>(step.in.channels) * area
                                : static_cast<double>(step.in.elements());
  return std::sqrt((drops_half ? 2 : 1) / inputs);
}

/// Builds a convolutional network, front to back.
class CnnBuilder {
 public:
  CnnBuilder(const CnnConfig& config, std::vector<CnnStep> steps, std::int64_t vn_size,
             const std::string& family)
      : config_(config),
        steps_(std::move(steps)),
        family_(family),
        model_(family),
        sample_{"sample", vn_size},
        num_reads_(steps_.size()) {}

  std::unique_ptr<Model> build() && {
    add_pictures();
    count_reads();
    for (const CnnStep& step : steps_) {
      if (num_pieces(step) > 1) {
        add_divided(step);
      } else {
        edges_.push_back(
            {add_layer(step, {.name = step.layer.name, .is_end = true}, read(step.terms))});
      }
      ++num_whole_;
    }
    model_.spec().metrics = {accuracy().spec};
    freeze(model_.spec(), config_.freeze);
    return std::move(model_).build();
  }

 private:
  void add_pictures();
  void count_reads();
  void add_divided(const CnnStep& step);
  std::vector<int> add_params(const CnnStep& step, const Place& place);
  /// Returns the edge that the layer makes; -1 for the loss.
  int add_layer(const CnnStep& step, const Place& place, Reading reading);

  /// The step whose layers are being added.
  const CnnStep& whole() const { return steps_[static_cast<std::size_t>(num_whole_)]; }
  bool is_last() const { return &whole() == &steps_.back(); }
  std::int64_t num_pieces(const CnnStep& step) const;
  Reading read(std::span<const std::vector<CnnSource>> terms) const;
  /// Whether pieces can read the first term: no other layer may read edges with gradients.
  bool is_read_alone(const CnnStep& step) const;
  std::string kind(const CnnStep& step) const;
  TensorSpec output(const CnnShape& shape) const;

  const CnnConfig& config_;
  const std::vector<CnnStep> steps_;
  const std::string family_;
  ModelBuilder model_;
  const Dim sample_;
  std::vector<int> num_reads_;           // of each step
  std::vector<std::vector<int>> edges_;  // of each step so far
  int num_whole_ = 0;                    // layers of the undivided model so far
};

void CnnBuilder::add_pictures() {
  const std::int64_t numbers = config_.num_channels * config_.image_size * config_.image_size;
  model_.add_batch("rows", {DType::i64, {sample_, {"number", numbers + 1}}});
  model_.spec().indices = {{numbers, numbers + 1, config_.num_classes}};
}

void CnnBuilder::count_reads() {
  for (const CnnStep& step : steps_) {
    for (const auto& term : step.terms) {
      for (const CnnSource& source : term) {
        if (source.step >= 0) ++num_reads_[static_cast<std::size_t>(source.step)];
      }
    }
  }
}

std::int64_t CnnBuilder::num_pieces(const CnnStep& step) const {
  const bool is_conv = step.layer.type == CnnLayerType::conv;
  if (!is_conv && step.layer.type != CnnLayerType::linear) return 1;
  const std::int64_t pieces = config_.pieces.channels, size = step.out.channels;
  return pieces == 0 ? detail::pieces_for(size, is_conv ? 64 : 512) : std::min(pieces, size);
}

Reading CnnBuilder::read(std::span<const std::vector<CnnSource>> terms) const {
  Reading reading;
  const auto number_of = [&](int edge) {
    const auto found = std::ranges::find(reading.inputs, edge);
    const auto number = static_cast<std::size_t>(found - reading.inputs.begin());
    if (found == reading.inputs.end()) reading.inputs.push_back(edge);
    return number;
  };
  const std::vector<int> rows{0};
  for (const auto& term : terms) {
    auto& parts = reading.terms.emplace_back();
    for (const CnnSource& source : term) {
      const auto& edges = source.step < 0 ? rows : edges_[static_cast<std::size_t>(source.step)];
      for (const int edge : edges) parts.push_back({number_of(edge), source.pool, source.flat});
    }
  }
  return reading;
}

bool CnnBuilder::is_read_alone(const CnnStep& step) const {
  return std::ranges::all_of(step.terms[0], [&](const CnnSource& source) {
    return source.step < 0 ||
           (source.pool == CnnPool::none && num_reads_[static_cast<std::size_t>(source.step)] == 1);
  });
}

/// Costs depend on more than shapes.
std::string CnnBuilder::kind(const CnnStep& step) const {
  const CnnLayerConfig& layer = step.layer;
  const auto text = [](const CnnSize& size) { return fmt::format("{}x{}", size[0], size[1]); };
  std::string kind = fmt::format("{}.{}", family_, to_string(layer.type));
  if (layer.kernel_size[0] > 0) {
    kind +=
        fmt::format("/{}/{}/{}", text(layer.kernel_size), text(layer.stride), text(layer.padding));
  }
  for (const auto& term : step.terms) {
    for (const CnnSource& source : term) {
      if (source.pool != CnnPool::none) kind += "+pool";
    }
  }
  if (layer.activation != CnnActivation::none) {
    kind += fmt::format("+{}", to_string(layer.activation));
  }
  return step.dropout > 0 ? kind + "+dropout" : kind;
}

TensorSpec CnnBuilder::output(const CnnShape& shape) const {
  const Dim channel{"channel", shape.channels};
  if (shape.is_flat) return {DType::f32, {sample_, channel}};
  return {DType::f32, {sample_, channel, {"height", shape.height}, {"width", shape.width}}};
}

std::vector<int> CnnBuilder::add_params(const CnnStep& step, const Place& place) {
  const auto& [piece, pieces] = std::pair(place.piece, place.pieces);
  const CnnLayerConfig& layer = step.layer;
  const Dim out{"channel", step.out.channels};
  std::vector<int> params;
  if (layer.type == CnnLayerType::linear) {
    model_.add_linear(params, layer.name, out, {"channel_in", step.in.elements()},
                      stddev_of(whole()), piece, pieces);
  }
  if (layer.type != CnnLayerType::conv) return params;
  const auto& [height, width] = layer.kernel_size;
  const std::vector<Dim> dims{
      out, {"channel_in", step.in.channels}, {"kernel_height", height}, {"kernel_width", width}};
  params.push_back(model_.add_piece({.name = layer.name + ".weight",
                                     .tensor = {DType::f32, dims},
                                     .init = {InitSpec::Kind::normal, stddev_of(whole())}},
                                    piece, pieces));
  const std::string norm = norm_name(layer);
  if (norm.empty()) {
    params.push_back(model_.add_piece(
        {.name = layer.name + ".bias", .tensor = {DType::f32, {out}}, .decay = false}, piece,
        pieces));
  } else {
    const BatchNormConfig config{config_.batch_norm_eps, config_.batch_norm_momentum};
    add_batch_norm(model_, params, norm, out, config, piece, pieces);
  }
  return params;
}

int CnnBuilder::add_layer(const CnnStep& step, const Place& place, Reading reading) {
  CnnOp op{.layer = step.layer,
           .has_norm = !norm_name(step.layer).empty(),
           .norm_eps = config_.batch_norm_eps,
           .dropout = step.dropout,
           .terms = std::move(reading.terms),
           .pictures = {config_.num_channels, config_.image_size, config_.input_scale}};
  LayerSpec spec{.name = place.name,
                 .kind = kind(step),
                 .params = add_params(step, place),
                 .inputs = std::move(reading.inputs),
                 .piece = place.piece,
                 .pieces = place.pieces};
  CnnShape out = step.out;
  if (place.pieces > 1) {
    const auto weight = static_cast<std::size_t>(spec.params.front());
    out.channels = model_.spec().params[weight].tensor.dims.front().size;
  }
  if (step.layer.type == CnnLayerType::conv) {
    const auto outputs = static_cast<double>(sample_.size * out.elements());
    const auto area = static_cast<double>(step.layer.kernel_size[0] * step.layer.kernel_size[1]);
    spec.forward_flops = 2 * outputs * area * static_cast<double>(step.in.channels);
    spec.saved_elements = 3 * outputs;
  }
  const auto position = static_cast<int>(model_.spec().layers.size());
  if (place.is_end && position != num_whole_) spec.draws_as = num_whole_;
  if (!place.is_end || !is_last()) {
    return model_.add_layer(std::move(spec), make_cnn_layer(std::move(op)), output(out));
  }
  constexpr int kRows = 0;
  const auto rows = std::ranges::find(spec.inputs, kRows);
  op.labels = static_cast<int>(rows - spec.inputs.begin());
  if (rows == spec.inputs.end()) spec.inputs.push_back(kRows);
  model_.add_loss(std::move(spec), make_cnn_layer(std::move(op)));
  return -1;
}

void CnnBuilder::add_divided(const CnnStep& step) {
  const std::string& name = step.layer.name;
  const auto pieces = static_cast<int>(num_pieces(step));
  const bool has_end = step.terms.size() > 1 || step.dropout > 0 || is_last();
  CnnStep part = step;
  part.terms.resize(1);
  part.dropout = 0;
  if (has_end) part.layer.activation = CnnActivation::none;
  Reading reading = read(part.terms);
  if (!is_read_alone(step)) {
    const CnnStep copy{
        .layer = {.type = CnnLayerType::concat}, .terms = part.terms, .in = {}, .out = step.in};
    const int edge = add_layer(copy, {.name = name + "/in"}, std::move(reading));
    reading = {.inputs = {edge}, .terms = {{CnnPart{}}}};
    part.terms = {};
  }
  std::vector<int> edges;
  for (int i = 0; i < pieces; ++i) {
    const Place place{.name = fmt::format("{}/{}", name, i), .piece = i, .pieces = pieces};
    edges.push_back(add_layer(part, place, reading));
  }
  edges_.push_back(std::move(edges));
  if (!has_end) return;
  CnnStep end{.layer = {.type = CnnLayerType::add, .activation = step.layer.activation},
              .terms = step.terms,
              .in = step.out,
              .out = step.out,
              .dropout = step.dropout};
  end.terms[0] = {{.step = num_whole_}};
  const int edge = add_layer(end, {.name = name, .is_end = true}, read(end.terms));
  edges_.back() = {edge};
}

std::int64_t most_elements(const CnnConfig& config, const std::vector<CnnStep>& steps) {
  std::int64_t most = config.num_channels * config.image_size * config.image_size + 1;
  for (const CnnStep& step : steps) {
    most = std::max({most, step.in.elements(), step.out.elements()});
  }
  return most;
}

void check_variance(const std::vector<CnnStep>& steps, std::int64_t vn_size) {
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

}  // namespace

std::unique_ptr<Model> make_cnn(const CnnConfig& config, std::int64_t vn_size,
                                const std::string& family) {
  config.validate();
  std::vector<CnnStep> steps = cnn_steps(config);
  detail::check_vn_size(vn_size, most_elements(config, steps));
  check_variance(steps, vn_size);
  return CnnBuilder(config, std::move(steps), vn_size, family).build();
}

}  // namespace spillway
