#include "models/pictures/cnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "models/base/batch_norm.h"
#include "models/base/freeze.h"
#include "models/base/model_checks.h"
#include "models/pictures/cnn_graph.h"
#include "models/pictures/cnn_layers.h"
#include "models/pictures/cnn_rows.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "spillway/loss.h"
#include "spillway/model_builder.h"

namespace spillway {
namespace {

/// The edges that a layer reads, and how.
struct Reading {
  std::vector<int> inputs;
  std::vector<std::vector<CnnPart>> terms;
  std::optional<CnnSize> row_padding = {};  ///< of a piece by rows
  int factors = -1;                         ///< CnnOp::factors

  /// The number of an edge among the inputs, of which it becomes one.
  std::size_t number_of(int edge) {
    const auto found = std::ranges::find(inputs, edge);
    const auto number = static_cast<std::size_t>(found - inputs.begin());
    if (found == inputs.end()) inputs.push_back(edge);
    return number;
  }
};

/// The edge of the batch.
constexpr int kRows = 0;

/// A layer of the model: a step, or a part of it.
struct Place {
  std::string name;
  int piece = 0, pieces = 1;
  bool is_end = false;  ///< of the step
};

/// What a step makes: one edge, or one for each piece.
struct StepOutput {
  std::vector<int> edges;
  bool in_rows = false;  ///< pieces are rows, else channels or features
};

/// Rows of an edge that a piece reads.
struct EdgeRows {
  int piece = 0;  ///< of the reading step, which lies where the edge is made
  int edge = 0;
  RowRange rows;
  int reader = 0;  ///< the piece that reads them
  auto operator<=>(const EdgeRows&) const = default;
};

/// Edges with copies of the rows that pieces read from others, so that only these rows go to
/// another device.
using Halos = std::map<EdgeRows, int>;

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
      if (num_row_pieces(step) > 1) {
        add_in_rows(step);
      } else if (num_pieces(step) > 1) {
        add_divided(step);
      } else {
        const Place place{.name = step.layer.name, .is_end = true};
        outputs_.push_back({{add_layer(step, place, read(step.terms), add_params(step))}});
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
  void add_in_rows(const CnnStep& step);
  Halos add_halos(const CnnStep& step, int pieces);
  /// The steps of a batch normalization before the last (models/base/batch_norm.h): of one piece,
  /// and of all. Both return the edge.
  int add_moments(const CnnStep& step, const Place& place, int edge);
  int add_factors(const CnnStep& step, std::vector<int> moments, const std::vector<int>& params);
  int add_of_channels(LayerSpec spec, std::unique_ptr<Layer> layer, std::int64_t channels);
  std::vector<int> add_params(const CnnStep& step, int piece = 0, int pieces = 1);
  /// Returns the edge that the layer makes; -1 for the loss.
  int add_layer(const CnnStep& step, const Place& place, Reading reading,
                std::vector<int> params = {});

  /// The step whose layers are being added.
  const CnnStep& whole() const { return steps_[at(num_whole_)]; }
  bool is_last() const { return &whole() == &steps_.back(); }
  std::int64_t num_pieces(const CnnStep& step) const;
  int num_row_pieces(const CnnStep& step) const;
  Reading read(std::span<const std::vector<CnnSource>> terms) const;
  /// What a piece reads of a source.
  std::vector<EdgeRows> rows_of(const CnnSource& source, const RowRange& rows,
                                const Place& reader) const;
  /// Appends a term to what a piece reads.
  void read_rows(Reading& reading, const std::vector<CnnSource>& term, const RowRange& rows,
                 const Place& reader, const Halos& halos) const;
  /// Whether pieces can read the first term: no other layer may read edges with gradients.
  bool is_read_alone(const CnnStep& step) const;
  TensorSpec output(const CnnShape& shape) const;

  const CnnConfig& config_;
  const std::vector<CnnStep> steps_;
  const std::string family_;
  ModelBuilder model_;
  const Dim sample_;
  std::vector<int> num_reads_;       // of each step
  std::vector<StepOutput> outputs_;  // of each step so far
  int num_whole_ = 0;                // layers of the undivided model so far
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
        if (source.step >= 0) ++num_reads_[at(source.step)];
      }
    }
  }
}

std::int64_t CnnBuilder::num_pieces(const CnnStep& step) const {
  const bool is_conv = step.layer.type == CnnLayerType::conv;
  if (!is_conv && step.layer.type != CnnLayerType::linear) return 1;
  if (is_conv && config_.pieces.height > 1) return 1;
  const std::int64_t pieces = config_.pieces.channels, size = step.out.channels;
  return pieces == 0 ? detail::pieces_for(size, is_conv ? 64 : 512) : std::min(pieces, size);
}

/// Dropout is keyed by whole pictures.
int CnnBuilder::num_row_pieces(const CnnStep& step) const {
  if (config_.pieces.height == 1 || step.dropout > 0 || is_last()) return 1;
  if (!can_divide_rows(step)) return 1;
  return static_cast<int>(std::min(config_.pieces.height, step.out.height));
}

Reading CnnBuilder::read(std::span<const std::vector<CnnSource>> terms) const {
  Reading reading;
  const StepOutput rows{.edges = {kRows}};
  for (const auto& term : terms) {
    auto& parts = reading.terms.emplace_back();
    for (const CnnSource& source : term) {
      const auto& made = source.step < 0 ? rows : outputs_[at(source.step)];
      for (const int edge : made.edges) {
        if (!made.in_rows || edge == made.edges.front())
          parts.push_back({.strips = {}, .pool = source.pool, .flat = source.flat});
        parts.back().strips.push_back({reading.number_of(edge)});
      }
    }
  }
  return reading;
}

std::vector<EdgeRows> CnnBuilder::rows_of(const CnnSource& source, const RowRange& rows,
                                          const Place& reader) const {
  const int piece = reader.piece;
  if (source.step < 0) return {{piece, kRows, rows, piece}};
  const auto& [edges, in_rows] = outputs_[at(source.step)];
  if (!in_rows) return {{piece, edges.front(), rows, piece}};
  const auto made = static_cast<int>(edges.size());
  std::vector<EdgeRows> found;
  for (int i = 0; i < made; ++i) {
    const RowRange held = rows_of_piece(steps_[at(source.step)].out.height, i, made);
    const RowRange inside = rows.inside(held);
    if (inside.size() == 0) continue;
    found.push_back({i * reader.pieces / made, edges[at(i)], inside, piece});
  }
  return found;
}

bool CnnBuilder::is_read_alone(const CnnStep& step) const {
  return std::ranges::all_of(step.terms[0], [&](const CnnSource& source) {
    return source.step < 0 || (source.pool == CnnPool::none && num_reads_[at(source.step)] == 1);
  });
}

TensorSpec CnnBuilder::output(const CnnShape& shape) const {
  const Dim channel{"channel", shape.channels};
  if (shape.is_flat) return {DType::f32, {sample_, channel}};
  return {DType::f32, {sample_, channel, {"height", shape.height}, {"width", shape.width}}};
}

std::vector<int> CnnBuilder::add_params(const CnnStep& step, int piece, int pieces) {
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

int CnnBuilder::add_layer(const CnnStep& step, const Place& place, Reading reading,
                          std::vector<int> params) {
  const CnnLayerConfig& layer = step.layer;
  CnnOp op{.layer = layer,
           .has_norm = !norm_name(layer).empty(),
           .norm_eps = config_.batch_norm_eps,
           .dropout = step.dropout,
           .terms = std::move(reading.terms),
           .row_padding = reading.row_padding.value_or(CnnSize{layer.padding[0], layer.padding[0]}),
           .factors = reading.factors,
           .pictures = {config_.num_channels, config_.image_size, config_.input_scale}};
  LayerSpec spec{.name = place.name,
                 .kind = kind_of(family_, op),
                 .params = std::move(params),
                 .inputs = std::move(reading.inputs),
                 .piece = place.piece,
                 .pieces = place.pieces};
  CnnShape out = step.out;
  if (layer.type == CnnLayerType::conv) {
    const auto outputs = static_cast<double>(sample_.size * out.elements());
    const auto area = static_cast<double>(layer.kernel_size[0] * layer.kernel_size[1]);
    spec.forward_flops = 2 * outputs * area * static_cast<double>(step.in.channels);
    const bool is_bare = !op.has_norm && layer.activation == CnnActivation::none;
    spec.saved_elements = is_bare ? outputs : 3 * outputs;
  }
  const auto position = static_cast<int>(model_.spec().layers.size());
  if (place.is_end && position != num_whole_) spec.draws_as = num_whole_;
  if (!place.is_end || !is_last()) {
    return model_.add_layer(std::move(spec), make_cnn_layer(std::move(op)), output(out));
  }
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
    reading = {.inputs = {edge}, .terms = {{CnnPart{.strips = {{}}}}}};
    part.terms = {};
  }
  StepOutput made;
  for (int i = 0; i < pieces; ++i) {
    const Place place{.name = fmt::format("{}/{}", name, i), .piece = i, .pieces = pieces};
    std::vector<int> params = add_params(step, i, pieces);
    part.out.channels = model_.spec().params[at(params.front())].tensor.dims.front().size;
    made.edges.push_back(add_layer(part, place, reading, std::move(params)));
  }
  outputs_.push_back(std::move(made));
  if (!has_end) return;
  CnnStep end{.layer = {.type = CnnLayerType::add, .activation = step.layer.activation},
              .terms = step.terms,
              .in = step.out,
              .out = step.out,
              .dropout = step.dropout};
  end.terms[0] = {{.step = num_whole_}};
  const int edge = add_layer(end, {.name = name, .is_end = true}, read(end.terms));
  outputs_.back() = {{edge}};
}

void CnnBuilder::read_rows(Reading& reading, const std::vector<CnnSource>& term,
                           const RowRange& rows, const Place& reader, const Halos& halos) const {
  auto& parts = reading.terms.emplace_back();
  for (const CnnSource& source : term) {
    CnnPart& part = parts.emplace_back();
    for (const EdgeRows& read : rows_of(source, rows, reader)) {
      const bool is_beside = read.piece == reader.piece;
      const int edge = is_beside ? read.edge : halos.at(read);
      part.strips.push_back({reading.number_of(edge), is_beside ? read.rows : RowRange{}});
    }
  }
}

Halos CnnBuilder::add_halos(const CnnStep& step, int pieces) {
  Halos halos;
  for (int i = 0; i < pieces; ++i) {
    const RowRange output = rows_of_piece(step.out.height, i, pieces);
    for (const auto& term : step.terms) {
      const bool is_first = &term == &step.terms.front();
      const RowRange rows = is_first ? window_for(step, output).rows : output;
      for (const CnnSource& source : term) {
        for (const EdgeRows& read : rows_of(source, rows, {.piece = i, .pieces = pieces})) {
          if (read.piece != i) halos.emplace(read, -1);
        }
      }
    }
  }
  int number = 0;
  for (auto& [read, edge] : halos) {
    const std::vector<Dim>& from = model_.spec().edges[at(read.edge)].tensor.dims;
    CnnStep copy{.layer = {.type = CnnLayerType::concat}, .terms = {}, .in = {}, .out = {}};
    copy.out = {.channels = from[1].size, .height = read.rows.size(), .width = from[3].size};
    const Place place{.name = fmt::format("{}/halo.{}", step.layer.name, number++),
                      .piece = read.piece,
                      .pieces = pieces};
    edge =
        add_layer(copy, place, {.inputs = {read.edge}, .terms = {{{.strips = {{0, read.rows}}}}}});
  }
  return halos;
}

/// With batch normalization a piece is a convolution, its moments and, when the factors have been
/// made of those of all pieces, the rest.
void CnnBuilder::add_in_rows(const CnnStep& step) {
  const int pieces = num_row_pieces(step);
  const bool has_norm = !norm_name(step.layer).empty();
  const Halos halos = add_halos(step, pieces);
  const std::vector<int> params = add_params(step);
  const auto place = [&](const char* part, int piece) {
    return Place{fmt::format("{}/{}{}", step.layer.name, part, piece), piece, pieces};
  };
  std::vector<CnnStep> ends(at(pieces), step);
  std::vector<Reading> readings(at(pieces));
  std::vector<int> moments;
  for (int i = 0; i < pieces; ++i) {
    const RowRange output = rows_of_piece(step.out.height, i, pieces);
    CnnStep& end = ends[at(i)];
    Reading& reading = readings[at(i)];
    end.out.height = output.size();
    const RowWindow window = window_for(step, output);
    read_rows(reading, step.terms[0], window.rows, place("", i), halos);
    reading.row_padding = {window.above, window.below};
    if (has_norm) {
      CnnStep conv = end;
      conv.terms.resize(1);
      conv.layer.batch_norm = "false";
      conv.layer.activation = CnnActivation::none;
      const int edge = add_layer(conv, place("conv.", i), std::move(reading), {params[0]});
      moments.push_back(add_moments(conv, place("moments.", i), edge));
      end.layer = {.type = CnnLayerType::add, .activation = step.layer.activation};
      reading = {.inputs = {edge}, .terms = {{{.strips = {{}}}}}};
    }
    for (std::size_t t = 1; t < step.terms.size(); ++t) {
      read_rows(reading, step.terms[t], output, place("", i), halos);
    }
  }
  const int factors = has_norm ? add_factors(step, std::move(moments), params) : -1;
  StepOutput made{.edges = {}, .in_rows = true};
  for (int i = 0; i < pieces; ++i) {
    Reading& reading = readings[at(i)];
    if (has_norm) reading.factors = static_cast<int>(reading.number_of(factors));
    made.edges.push_back(add_layer(ends[at(i)], place("", i), std::move(reading),
                                   has_norm ? std::vector<int>() : params));
  }
  outputs_.push_back(std::move(made));
}

int CnnBuilder::add_of_channels(LayerSpec spec, std::unique_ptr<Layer> layer,
                                std::int64_t channels) {
  const TensorSpec tensor{DType::f32, {{"moment", 2}, {"channel", channels}}};
  const int edge = model_.add_layer(std::move(spec), std::move(layer), tensor);
  model_.spec().edges.back().keeps_type = true;
  return edge;
}

int CnnBuilder::add_moments(const CnnStep& step, const Place& place, int edge) {
  return add_of_channels({.name = place.name,
                          .kind = family_ + ".moments",
                          .inputs = {edge},
                          .saved_elements = static_cast<double>(sample_.size * step.out.elements()),
                          .piece = place.piece,
                          .pieces = place.pieces},
                         make_cnn_moments(), step.out.channels);
}

int CnnBuilder::add_factors(const CnnStep& step, std::vector<int> moments,
                            const std::vector<int>& params) {
  const auto pieces = static_cast<int>(moments.size());
  std::vector<double> shares;
  for (int i = 0; i < pieces; ++i) {
    const RowRange rows = rows_of_piece(step.out.height, i, pieces);
    shares.push_back(static_cast<double>(rows.size()) / static_cast<double>(step.out.height));
  }
  return add_of_channels(
      {.name = step.layer.name + "/factors",
       .kind = family_ + ".factors",
       .params = {params.begin() + 1, params.end()},
       .inputs = std::move(moments),
       .pieces = pieces},
      make_cnn_factors(std::move(shares), sample_.size * step.out.area(), config_.batch_norm_eps),
      step.out.channels);
}

}  // namespace

std::unique_ptr<Model> make_cnn(const CnnConfig& config, std::int64_t vn_size,
                                const std::string& family) {
  config.validate();
  std::vector<CnnStep> steps = cnn_steps(config);
  check_virtual_node(config, steps, vn_size);
  return CnnBuilder(config, std::move(steps), vn_size, family).build();
}

}  // namespace spillway
