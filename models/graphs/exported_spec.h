#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/safetensors/safetensors.h"
#include "spillway/spec.h"

/// A model that PyTorch exported, as docs/formats.md describes it ("A model as a graph"), as
/// values. Numbers are positions in the lists of ExportedSpec.
namespace spillway {

/// The type of a tensor in a file or in a row.
enum class ValueType : std::uint8_t { f32, bf16, i64, i32, boolean };

/// A value of a graph: first the inputs of its layer, then its parameters, then its constants, then
/// the outputs of each node.
struct GraphValue {
  int number = 0;
};
/// {"dtype": "float32"}: a type, a layout or a memory format.
struct GraphWord {
  enum class Kind : std::uint8_t { dtype, layout, memory_format } kind = Kind::dtype;
  std::string text;
};
/// The device on which the layer computes.
struct GraphDevice {};
using GraphItem = std::variant<std::monostate, bool, std::int64_t, double, std::string, GraphValue,
                               GraphWord, GraphDevice>;
using GraphArgument = std::variant<GraphItem, std::vector<GraphItem>>;

/// Dropouts of a layer, see models/base/dropout.h.
inline constexpr std::uint32_t kMostDropouts = 16;
inline constexpr const char* kDropout = "spillway::dropout";

/// A call of an operator.
struct GraphNode {
  std::string op, overload;         ///< "aten::add", "Tensor"
  std::vector<GraphArgument> args;  ///< for all arguments of the operator's schema, in order
  int num_outputs = 1;

  /// "aten::add.Tensor"
  std::string name() const { return overload.empty() ? op : op + "." + overload; }
};

struct ExportedGraph {
  std::vector<GraphNode> nodes;
  int result = 0;    ///< the value that it gives
  std::string json;  ///< what it was read from
};

/// A part of each row.
struct ExportedInput {
  std::string name;
  std::int64_t begin = 0;
  std::vector<std::int64_t> shape;  ///< without the sample
  ValueType type = ValueType::f32;  ///< f32, i64 or boolean
  std::int64_t limit = 0;           ///< of indices; 0: it holds none

  std::int64_t elements() const;
};

/// The part of a tensor that a piece of a layer holds: dimension `dim` consists of `blocks` of
/// equal size, and each piece has an equal part of each block.
struct ExportedPart {
  int dim = 0;
  std::int64_t blocks = 1;
  int piece = 0, pieces = 1;
};

struct ExportedParam {
  TensorEntry tensor;
  bool trainable = true, decay = true;
  StatisticSpec statistic;
  /// Of a parameter that is not in the file: it begins between -uniform and uniform.
  std::optional<double> uniform = std::nullopt;
  /// What the layer gets of the tensor; nothing: all of it.
  std::optional<ExportedPart> part = std::nullopt;

  bool is_statistic() const { return statistic.kind != StatisticSpec::Kind::none; }
  /// As the layer gets it.
  std::vector<std::int64_t> shape() const;
};

/// What a layer reads: an input or an earlier layer.
struct ExportedSource {
  int input = -1;
  int layer = -1;
};

struct ExportedLayer {
  std::string name;
  std::vector<ExportedSource> inputs;
  std::vector<int> params, constants;
  int train = 0, eval = 0;  ///< graphs
  /// Of the output for a virtual node, with the samples.
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
  bool differentiable = true;
  int piece = 0, pieces = 1;  ///< see LayerSpec
  /// The output is a term of one value, of which all pieces make terms.
  bool makes_term = false;
  int draws_as = -1;  ///< see LayerSpec

  /// The parameter of the model that a value of its graphs is; -1: it is none.
  int param_of(int value) const;
};

struct ExportedLoss {
  /// `divided`: the cross entropy of classes that pieces share. Each has computed, for each target,
  /// the logarithm of the sum of exponentials over its classes, the logit of the target or 0 and,
  /// with ExportedSpec::has_accuracy, its largest logit and the class of that.
  enum class Kind : std::uint8_t { cross_entropy, mse, bce, graph, divided } kind = Kind::mse;
  std::vector<ExportedSource> inputs;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  std::vector<int> constants;  ///< of a graph
  int train = 0, eval = 0;     ///< of a graph
  std::int64_t classes = 0;    ///< of `divided`
  int draws_as = -1;           ///< see LayerSpec
};

struct ExportedSpec {
  std::string name;
  std::int64_t batch_size = 1;
  DType dtype = DType::f32;  ///< f32 or bf16: for which TrainConfig::dtype it was made
  DType row_dtype = DType::f32;
  std::int64_t row_elements = 0;
  std::vector<ExportedInput> inputs;
  std::vector<ExportedParam> params;
  std::vector<TensorEntry> constants;
  std::deque<ExportedGraph> graphs;  ///< they stay where they are when others are added
  std::vector<ExportedLayer> layers;
  ExportedLoss loss;
  bool has_accuracy = false, has_perplexity = false;
};

}  // namespace spillway
