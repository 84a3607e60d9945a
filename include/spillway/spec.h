#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/metric.h"
#include "spillway/units.h"

namespace spillway {

/// Type of the elements of a tensor.
enum class DType : std::uint8_t {
  f32,   ///< 4 bytes
  bf16,  ///< 2 bytes
  i64    ///< 8 bytes
};
/// Bytes of one element.
Bytes size_of(DType dtype);

/// A named dimension, e.g. {"sample", 4}. Strategies split tensors along names.
struct Dim {
  std::string name;       ///< "sample"
  std::int64_t size = 0;  ///< number of elements along it
  bool operator==(const Dim&) const = default;
};

/// Type and shape of a tensor.
struct TensorSpec {
  DType dtype = DType::f32;  ///< of the elements
  std::vector<Dim> dims;     ///< from the outermost to the innermost

  /// Product of the sizes.
  std::int64_t elements() const;
  /// Without padding.
  Bytes bytes() const { return static_cast<Bytes>(elements()) * size_of(dtype); }
  /// The sizes.
  std::vector<std::int64_t> shape() const;
  bool operator==(const TensorSpec&) const = default;
};

/// Initial value of a parameter. The normal distribution is drawn by Philox, keyed by
/// (seed, parameter).
struct InitSpec {
  /// The distribution.
  enum class Kind : std::uint8_t {
    zeros,               ///< all 0
    ones,                ///< all 1
    normal               ///< mean 0 and `stddev`
  } kind = Kind::zeros;  ///< the distribution
  double stddev = 0;     ///< of `normal`
  bool operator==(const InitSpec&) const = default;
};

/// How a running statistic follows what its layer observes in training. A running statistic is a
/// parameter without a gradient: the layer's forward returns one observation per virtual node,
/// observations are summed like gradients, and the update after a commit moves the statistic once.
struct StatisticSpec {
  /// What the update does.
  enum class Kind : std::uint8_t {
    none,               ///< the parameter is no statistic
    average,            ///< f32: (1 - momentum) * value + momentum * mean of the observations
    count,              ///< i64, one element, not observed: the number of committed steps
  } kind = Kind::none;  ///< what the update does
  std::optional<double> momentum = 0.1;  ///< nothing: 1 / committed steps, so the mean over all
};

/// The part of a tensor that a parameter holds, where pieces of a layer have a part each: the
/// elements [begin, end) along the middle dimension of the tensor seen as [outer, size, inner].
/// Files, patterns and results know the whole tensor only.
struct StoredSlice {
  std::string name;        ///< of the whole tensor; empty: the parameter is a tensor of its own
  std::vector<Dim> dims;   ///< of the whole tensor
  std::int64_t outer = 1;  ///< product of the dimensions before
  std::int64_t size = 1;   ///< of the dimension that is divided, or of a factor of it
  std::int64_t begin = 0;  ///< first of the elements that the parameter holds
  std::int64_t end = 1;    ///< one behind the last
  bool operator==(const StoredSlice&) const = default;
};

/// A parameter of a model.
struct ParamSpec {
  std::string name;             ///< "h.0.attn.weight"
  TensorSpec tensor;            ///< as its layer computes with it
  InitSpec init;                ///< its initial value
  bool trainable = true;        ///< false: no gradient, no optimizer state
  bool decay = true;            ///< weight decay applies (false for norms and biases)
  StatisticSpec statistic;      ///< whether it is a running statistic, and which
  DType gradient = DType::f32;  ///< f32 or bf16: to which finished gradient sums are rounded
  bool keeps_type = false;      ///< its layer needs it as f32, whatever TrainConfig::dtype says
  /// Names the bytes of its initial value, such as a hash of them; empty: unknown. Trials share a
  /// frozen parameter of the same name, type, shape and content.
  std::string content = {};
  StoredSlice stored = {};  ///< its part of a tensor of files, if it is not a whole one

  /// The name of the tensor in files and patterns: its own, or that of the whole tensor.
  const std::string& tensor_name() const { return stored.name.empty() ? name : stored.name; }
  /// Whether it is a running statistic.
  bool is_statistic() const { return statistic.kind != StatisticSpec::Kind::none; }
  /// Whether layers observe it in training. It then has a sum, as a trained parameter has.
  bool is_observed() const { return statistic.kind == StatisticSpec::Kind::average; }
  /// Whether gradients or observations of it are summed.
  bool has_sum() const { return trainable || is_observed(); }
  /// Whether trials may share it: no training changes it, and its content is known.
  bool can_be_shared() const { return !trainable && !is_statistic() && !content.empty(); }
  /// What the optimizer changes and files hold: f32 if the layer computes in bf16. Optimizer state
  /// and growing sums have the same shape and type.
  TensorSpec master() const;
  /// The part of its sum that leaves a device.
  TensorSpec finished_sum() const;
};

/// The smallest part of a model with a forward. Edges and parameters are positions in the
/// ModelSpec. Inputs are edges of any earlier layers, so a model is any graph whose layers have one
/// output each.
///
/// A large layer may be divided into pieces: consecutive layers whose names begin with that of the
/// whole layer and "/". A piece is one layer or several. Pieces make edges of their own, or all
/// make terms of one, whose value is their sum.
struct LayerSpec {
  std::string name;         ///< "h.0.attn"
  std::string kind;         ///< "attention"; layers of equal kind and equal shapes have equal costs
  std::vector<int> params;  ///< in the order in which forward() receives them
  std::vector<int> inputs;  ///< in the order in which forward() receives them
  std::vector<int> outputs;  ///< one; none for the loss layer, whose result is (sum, weight)
  /// For estimates: of the forward of one virtual node. Negative: derived from the shapes.
  double forward_flops = -1;
  double saved_elements = -1;  ///< that backward needs, output included; negative: derived
  int piece = 0;               ///< to which piece of the divided layer it belongs
  int pieces = 1;              ///< 1: not divided
  /// The number by which its random draws are keyed; negative: its position. Pieces must not change
  /// the draws of the layers behind them.
  int draws_as = -1;
  /// False if its results have a LayerResult::lease: then none of its graphs outlives an op.
  bool keeps_graph = true;
};

/// A tensor that passes between layers, one per virtual node.
struct EdgeSpec {
  std::string name;            ///< of the layer that makes it, or of its part of the batch
  TensorSpec tensor;           ///< for one virtual node
  int producer = -1;           ///< the (first) layer that makes it, or -1: part of the batch
  bool differentiable = true;  ///< false: no later layer sends a gradient back
  /// Number of layers that make it. Above 1, these are pieces, from `producer` on; it is the sum of
  /// their terms, by the tree of core/base/fold.h, and one layer reads it.
  int makers = 1;
  /// Above 1: it has a gradient, and only consecutive layers read it, one for each piece of a
  /// layer; its gradient is the sum over the pieces, by the same tree.
  int reading_pieces = 1;
  bool keeps_type = false;  ///< it stays f32, whatever TrainConfig::dtype says

  /// Whether layer `layer` makes it, or a term of it.
  bool is_made_by(int layer) const { return layer >= producer && layer < end_of_makers(); }
  /// One behind the last layer that makes it; 0: part of the batch.
  int end_of_makers() const { return producer < 0 ? 0 : producer + makers; }
};
/// Whether gradients flow back through an edge.
inline bool has_gradient(const EdgeSpec& edge) { return edge.producer >= 0 && edge.differentiable; }

/// Values [begin, end) of a sample that are indices: classes of a loss, rows of an embedding. They
/// are whole numbers from 0 to `limit` - 1.
struct IndexRange {
  std::int64_t begin = 0;  ///< first value of the sample
  std::int64_t end = 0;    ///< one behind the last value
  std::int64_t limit = 0;  ///< number of classes or rows
  auto operator<=>(const IndexRange&) const = default;
};

/// A model as a value: layers in the order of execution, parameters in canonical order.
///
/// A parameter that several layers name is tied: it is a block of its own, and each use has its
/// own gradient sum.
struct ModelSpec {
  std::string family;             ///< "gpt"
  std::vector<ParamSpec> params;  ///< in canonical order
  std::vector<EdgeSpec> edges;    ///< activations and parts of the batch
  std::vector<LayerSpec> layers;  ///< in the order of execution
  /// Checked before a device sees a sample: an index out of range would break a whole GPU.
  std::vector<IndexRange> indices;
  std::vector<MetricSpec> metrics;  ///< what evaluations give beside the loss
  bool has_predictions = true;      ///< false: no layer has them in one piece

  /// Elements of all parameters; running statistics do not count.
  std::int64_t num_parameters() const;
  /// Layers that read edge `edge`, ascending.
  std::vector<int> consumers(int edge) const;
  /// Whether these layers are consecutive, one for each piece of a layer, in order. True for a
  /// layer that is not divided.
  bool are_all_pieces(const std::vector<int>& numbers) const;
  /// The sums of all metrics together.
  int num_metric_sums() const;
  /// Number of layers that name parameter `param`.
  int num_uses(int param) const;
  /// Throws Error unless every id is in range; every edge is produced before it is read, and is
  /// read; each layer has one output; a loss layer is at the end; pieces agree with the edges that
  /// are sums over them; every running statistic has its type, is not trained and belongs to one
  /// layer; all indices lie in the samples; each metric has a name of its own.
  void validate() const;
};

}  // namespace spillway
