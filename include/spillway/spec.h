#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/units.h"

namespace spillway {

enum class DType : std::uint8_t { f32, bf16, i64 };
Bytes size_of(DType dtype);

/// A named dimension, e.g. {"sample", 4}. Names are what strategies split along.
struct Dim {
  std::string name;
  std::int64_t size = 0;
  bool operator==(const Dim&) const = default;
};

struct TensorSpec {
  DType dtype = DType::f32;
  std::vector<Dim> dims;

  std::int64_t elements() const;
  Bytes bytes() const { return static_cast<Bytes>(elements()) * size_of(dtype); }
  std::vector<std::int64_t> shape() const;
  bool operator==(const TensorSpec&) const = default;
};

/// How a parameter starts: zeros, ones, or a normal distribution drawn by Philox keyed
/// (seed, parameter).
struct InitSpec {
  enum class Kind : std::uint8_t { zeros, ones, normal } kind = Kind::zeros;
  double stddev = 0;
  bool operator==(const InitSpec&) const = default;
};

/// How a running statistic follows what its layer observes in training. It is a parameter that no
/// gradient moves: the layer's forward returns an observation of it for each virtual node, these
/// are summed as gradients are, and the update after a commit moves it once.
struct StatisticSpec {
  enum class Kind : std::uint8_t {
    none,
    average,  ///< f32: (1 - momentum) * value + momentum * mean of the observations
    count,    ///< i64, one element, not observed: the number of committed steps
  } kind = Kind::none;
  std::optional<double> momentum = 0.1;  ///< none: 1 / committed steps, so the mean over all
};

struct ParamSpec {
  std::string name;
  TensorSpec tensor;  ///< as its layer computes with it
  InitSpec init;
  bool trainable = true;  ///< no: no gradient, no moments, no optimizer
  bool decay = true;      ///< weight decay applies (no for norms and biases)
  StatisticSpec statistic;
  DType gradient = DType::f32;  ///< what finished sums of its gradient are rounded to; or bf16

  bool is_statistic() const { return statistic.kind != StatisticSpec::Kind::none; }
  /// Observed in training, so it has a sum as a trained one has.
  bool is_observed() const { return statistic.kind == StatisticSpec::Kind::average; }
  bool has_sum() const { return trainable || is_observed(); }
  /// What the optimizer changes and files hold: in f32 where the layer computes with bf16. Moments
  /// and sums that grow are like it.
  TensorSpec master() const;
  /// What of its sum leaves a device.
  TensorSpec finished_sum() const;
};

/// The smallest piece with a forward. Edges and parameters are positions in the ModelSpec. Inputs
/// are edges of any earlier layers, so a model is any graph whose pieces have one output each.
struct LayerSpec {
  std::string name;  ///< "h.0.attn"
  std::string kind;  ///< "attention": equal kind, parameter and edge shapes means equal cost
  std::vector<int> params;
  std::vector<int> inputs;
  std::vector<int> outputs;  ///< one; none for the loss layer, whose result is (sum, weight)
  /// For estimates, of one virtual node's forward; below 0: from the shapes.
  double forward_flops = -1;
  double saved_elements = -1;  ///< that a backward needs, output included
};

/// A tensor that passes between layers, per virtual node.
struct EdgeSpec {
  std::string name;
  TensorSpec tensor;
  int producer = -1;           ///< layer, or -1: part of the batch
  bool differentiable = true;  ///< no: nothing behind it sends a gradient back
};
/// Whether gradients flow back through an edge.
inline bool has_gradient(const EdgeSpec& edge) { return edge.producer >= 0 && edge.differentiable; }

/// Values [begin, end) of a sample that choose one of `limit`: classes of a loss, rows of an
/// embedding. Whole numbers from 0, below that.
struct IndexRange {
  std::int64_t begin = 0, end = 0, limit = 0;
  auto operator<=>(const IndexRange&) const = default;
};

/// A model as a value: layers in execution order, parameters in canonical order.
///
/// A parameter that several layers name is tied: it is a block of its own, and each use has its
/// own gradient sum.
struct ModelSpec {
  std::string family;
  std::vector<ParamSpec> params;
  std::vector<EdgeSpec> edges;
  std::vector<LayerSpec> layers;
  /// Checked before a device sees a sample: a GPU that is given another number fails as a whole.
  std::vector<IndexRange> indices;

  std::int64_t num_parameters() const;  ///< elements; running statistics do not count
  /// Layers that read edge `edge`, ascending.
  std::vector<int> consumers(int edge) const;
  /// Number of layers that name parameter `param`.
  int num_uses(int param) const;
  /// Throws Error unless the layers form a graph in order: every id in range, every edge produced
  /// before it is read and read by somebody, one output a layer, a loss layer at the end; and
  /// every running statistic is of its type, not trained, and of one layer; indices in samples.
  void validate() const;
};

}  // namespace spillway
