#include "models/graphs/spec_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "models/base/model_checks.h"
#include "models/graphs/graph_json.h"
#include "models/graphs/json_fields.h"
#include "spillway/error.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr IntRange kSizes{1, detail::kMaxSize};
constexpr IntRange kElements{1, detail::kMaxTensorElements};

std::int64_t product(const std::vector<std::int64_t>& shape, const JsonFields& fields) {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(n, size, &n) || n > kElements.max)
      fields.fail(fmt::format("has a shape of more than {} elements", kElements.max));
  }
  return n;
}

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  return n;
}

/// Reads the document key by key.
class SpecReader {
 public:
  SpecReader(const json& document, const Safetensors& tensors)
      : tensors_(tensors), fields_(document, "") {}

  ExportedSpec read() && {
    fields_.at("version");
    spec_.name = fields_.text("name");
    if (spec_.name.empty()) fields_.fail("has an empty name");
    spec_.batch_size = fields_.integer("batch_size", kSizes);
    spec_.dtype = static_cast<DType>(fields_.choice("dtype", {"float32", "bfloat16"}));
    read_row();
    for (const json& input : fields_.list("inputs")) read_input(input);
    for (const json& param : fields_.list("parameters")) read_param(param);
    for (const std::string& name : fields_.texts("constants")) {
      spec_.constants.push_back(tensor(name, fields_));
    }
    for (const json& graph : fields_.list("graphs")) {
      const std::size_t number = spec_.graphs.size();
      spec_.graphs.push_back(graph_of(graph, fmt::format("graph {}", number)));
    }
    for (const json& layer : fields_.list("layers")) read_layer(layer);
    read_loss();
    read_metrics();
    fields_.finish();
    check_uses();
    return std::move(spec_);
  }

 private:
  void read_row() {
    JsonFields row(fields_.at("row"), "row");
    spec_.row_dtype = row.choice("dtype", {"float32", "int64"}) == 0 ? DType::f32 : DType::i64;
    spec_.row_elements = row.integer("elements", kElements);
    row.finish();
  }

  void take_name(const std::string& name, ExportedSource source, const JsonFields& fields) {
    if (name.empty()) fields.fail("has an empty name");
    if (!sources_.emplace(name, source).second) fields.fail("has the name of another one");
  }

  void read_input(const json& object) {
    JsonFields fields(object, fmt::format("input {}", spec_.inputs.size()));
    ExportedInput input{.name = fields.text("name")};
    fields = JsonFields(object, fmt::format("input '{}'", input.name));
    fields.at("name");
    input.begin = fields.integer("begin", IntRange{0, kElements.max});
    input.shape = fields.integers("shape", kElements);
    const std::int64_t end = input.begin + product(input.shape, fields);
    if (end > spec_.row_elements) {
      fields.fail(fmt::format("ends at value {}, but a row has {}", end, spec_.row_elements));
    }
    constexpr ValueType kTypes[] = {ValueType::f32, ValueType::i64, ValueType::boolean};
    input.type = kTypes[fields.choice("dtype", {"float32", "int64", "bool"})];
    if (fields.has("limit")) input.limit = fields.integer("limit", IntRange{.min = 1});
    if (input.limit > 0 && input.type != ValueType::i64)
      fields.fail("has a limit, so its dtype must be int64");
    fields.finish();
    take_name(input.name, {.input = static_cast<int>(spec_.inputs.size())}, fields);
    spec_.inputs.push_back(std::move(input));
  }

  /// A tensor of the file that nothing else has named.
  const TensorEntry& tensor(const std::string& name, const JsonFields& fields) {
    const auto& all = tensors_.tensors();
    const auto found = std::ranges::find(all, name, &TensorEntry::name);
    if (found == all.end())
      fields.fail(fmt::format("names the tensor '{}', which is not there", name));
    if (!named_.insert(name).second)
      fields.fail(fmt::format("names the tensor '{}' a second time", name));
    constexpr std::array<std::string_view, 5> kTypes{"F32", "BF16", "I64", "I32", "BOOL"};
    if (std::ranges::find(kTypes, found->dtype) == kTypes.end()) {
      fields.fail(
          fmt::format("names the tensor '{}' of type {}, must be F32, BF16, I64, I32 or BOOL", name,
                      found->dtype));
    }
    return *found;
  }

  void read_param(const json& object) {
    JsonFields fields(object, fmt::format("parameter {}", spec_.params.size()));
    const std::string name = fields.text("name");
    fields = JsonFields(object, fmt::format("parameter '{}'", name));
    fields.at("name");
    ExportedParam param{.tensor = tensor(name, fields),
                        .trainable = fields.flag("trainable"),
                        .decay = fields.flag("decay")};
    if (fields.has("statistic")) param.statistic = statistic_of(fields.at("statistic"), name);
    fields.finish();
    check_type(param, fields);
    spec_.params.push_back(std::move(param));
  }

  static StatisticSpec statistic_of(const json& object, const std::string& name) {
    JsonFields fields(object, fmt::format("statistic '{}'", name));
    StatisticSpec statistic;
    if (fields.choice("kind", {"average", "count"}) == 1) {
      statistic.kind = StatisticSpec::Kind::count;
    } else {
      statistic.kind = StatisticSpec::Kind::average;
      statistic.momentum.reset();
      if (fields.has("momentum"))
        statistic.momentum = fields.number("momentum", NumberRange{.min = 0, .max = 1});
    }
    fields.finish();
    return statistic;
  }

  void check_type(const ExportedParam& param, const JsonFields& fields) const {
    using Kind = StatisticSpec::Kind;
    const std::string& type = param.tensor.dtype;
    const auto require = [&](bool holds, const std::string& problem) {
      if (!holds) fields.fail(problem);
    };
    require(type == "F32" || type == "BF16" || type == "I64",
            fmt::format("is of type {}, must be F32, BF16 or I64", type));
    require(type != "BF16" || spec_.dtype == DType::bf16,
            "is of type BF16 in a model for float32; export the model for bfloat16");
    require(!param.trainable || type != "I64", "is of type I64, so it cannot be trainable");
    const Kind kind = param.statistic.kind;
    require(kind == Kind::none || !param.trainable, "is a statistic, so it cannot be trainable");
    require(kind != Kind::average || type == "F32", "is an average, so its type must be F32");
    require(kind != Kind::count || (type == "I64" && param.tensor.shape.empty()),
            "is a count, so it must be one I64");
  }

  /// Positions in a list of `count`.
  static std::vector<int> numbers(JsonFields& fields, const char* key, std::size_t count) {
    std::vector<int> numbers;
    for (const std::int64_t number : fields.integers(key, IntRange{.min = 0})) {
      if (number >= static_cast<std::int64_t>(count))
        fields.fail(fmt::format("{} has {}, must be below their number, {}", key, number, count));
      if (std::ranges::count(numbers, static_cast<int>(number)) > 0)
        fields.fail(fmt::format("has {} twice in {}", number, key));
      numbers.push_back(static_cast<int>(number));
    }
    return numbers;
  }

  int graph(JsonFields& fields, const char* key, int num_given) const {
    const std::int64_t number = fields.integer(key, IntRange{.min = 0});
    if (number >= std::ssize(spec_.graphs)) {
      fields.fail(fmt::format("{} is graph {}, must be below their number, {}", key, number,
                              spec_.graphs.size()));
    }
    check_values(spec_.graphs[static_cast<std::size_t>(number)], num_given,
                 fmt::format("{}, graph {}", fields.place(), number));
    return static_cast<int>(number);
  }

  std::vector<ExportedSource> sources(JsonFields& fields) {
    std::vector<ExportedSource> found;
    std::set<std::string> names;
    for (const std::string& name : fields.texts("inputs")) {
      const auto source = sources_.find(name);
      if (source == sources_.end())
        fields.fail(fmt::format("reads '{}', which is no input and no earlier layer", name));
      if (!names.insert(name).second) fields.fail(fmt::format("reads '{}' twice", name));
      if (source->second.layer >= 0) read_layers_.insert(source->second.layer);
      found.push_back(source->second);
    }
    if (found.empty()) fields.fail("has no inputs");
    return found;
  }

  void read_layer(const json& object) {
    JsonFields fields(object, fmt::format("layer {}", spec_.layers.size()));
    ExportedLayer layer{.name = fields.text("name")};
    fields = JsonFields(object, fmt::format("layer '{}'", layer.name));
    fields.at("name");
    layer.inputs = sources(fields);
    layer.params = numbers(fields, "parameters", spec_.params.size());
    layer.constants = numbers(fields, "constants", spec_.constants.size());
    const auto num_given =
        static_cast<int>(layer.inputs.size() + layer.params.size() + layer.constants.size());
    layer.train = graph(fields, "train", num_given);
    layer.eval = graph(fields, "eval", num_given);
    JsonFields output(fields.at("output"), fields.place() + ", output");
    layer.shape = output.integers("shape", kElements);
    product(layer.shape, output);
    layer.dtype = static_cast<DType>(output.choice("dtype", {"float32", "bfloat16", "int64"}));
    layer.differentiable = output.flag("differentiable");
    if (layer.differentiable && layer.dtype == DType::i64)
      output.fail("is int64, so it cannot be differentiable");
    output.finish();
    fields.finish();
    take_name(layer.name, {.layer = static_cast<int>(spec_.layers.size())}, fields);
    spec_.layers.push_back(std::move(layer));
  }

  void read_loss() {
    using Kind = ExportedLoss::Kind;
    JsonFields fields(fields_.at("loss"), "loss");
    ExportedLoss& loss = spec_.loss;
    loss.kind = static_cast<Kind>(fields.choice("type", {"cross_entropy", "mse", "bce", "graph"}));
    loss.inputs = sources(fields);
    if (loss.kind == Kind::cross_entropy) {
      loss.ignore_index = fields.integer("ignore_index", IntRange{});
      loss.label_smoothing = fields.number("label_smoothing", NumberRange{.min = 0, .max = 1});
    }
    if (loss.kind == Kind::graph) {
      loss.constants = numbers(fields, "constants", spec_.constants.size());
      const auto num_given = static_cast<int>(loss.inputs.size() + loss.constants.size());
      loss.train = graph(fields, "train", num_given);
      loss.eval = graph(fields, "eval", num_given);
    } else {
      check_pair(fields);
    }
    fields.finish();
  }

  /// A layer and the part of the row that it is compared with.
  void check_pair(const JsonFields& fields) const {
    const ExportedLoss& loss = spec_.loss;
    if (loss.inputs.size() != 2 || loss.inputs[0].layer < 0 || loss.inputs[1].input < 0)
      fields.fail("must read a layer, then an input");
    const auto& layer = spec_.layers[static_cast<std::size_t>(loss.inputs[0].layer)];
    const auto& part = spec_.inputs[static_cast<std::size_t>(loss.inputs[1].input)];
    std::int64_t values = elements_of(layer.shape);
    const std::int64_t targets = spec_.batch_size * elements_of(part.shape);
    if (loss.kind == ExportedLoss::Kind::cross_entropy) {
      if (part.type != ValueType::i64)
        fields.fail(fmt::format("takes classes from '{}', whose dtype must be int64", part.name));
      values /= layer.shape.empty() ? 1 : layer.shape.back();
    }
    if (values != targets) {
      fields.fail(fmt::format("compares {} values of layer '{}' with {} of input '{}'", values,
                              layer.name, targets, part.name));
    }
  }

  void read_metrics() {
    using Kind = ExportedLoss::Kind;
    const Kind loss = spec_.loss.kind;
    for (const std::string& name : fields_.texts("metrics")) {
      const bool is_accuracy = name == "accuracy" && loss == Kind::cross_entropy;
      const bool is_perplexity =
          name == "perplexity" && (loss == Kind::cross_entropy || loss == Kind::graph);
      if (!is_accuracy && !is_perplexity)
        fields_.fail(
            fmt::format("metrics has '{}', which a model with this loss does not have", name));
      bool& has = is_accuracy ? spec_.has_accuracy : spec_.has_perplexity;
      if (std::exchange(has, true)) fields_.fail(fmt::format("metrics has '{}' twice", name));
    }
  }

  /// What is there must be used.
  void check_uses() const {
    std::vector<int> uses(spec_.params.size());
    for (const ExportedLayer& layer : spec_.layers) {
      for (const int p : layer.params) ++uses[static_cast<std::size_t>(p)];
    }
    for (std::size_t p = 0; p < uses.size(); ++p) {
      const ExportedParam& param = spec_.params[p];
      if (uses[p] == 0) fail_for("parameter", param.tensor.name, "belongs to no layer");
      if (param.is_statistic() && uses[p] > 1)
        fail_for("statistic", param.tensor.name, "belongs to several layers");
    }
    for (std::size_t l = 0; l < spec_.layers.size(); ++l) {
      if (!read_layers_.contains(static_cast<int>(l)))
        fail_for("layer", spec_.layers[l].name, "is read by no later layer and not by the loss");
    }
    for (const TensorEntry& entry : tensors_.tensors()) {
      // The rest of the module's state_dict, for Python, and what fills gaps.
      const bool is_other =
          entry.name.starts_with("state_dict.") || entry.name.starts_with("padding.");
      if (!named_.contains(entry.name) && !is_other)
        fail_for("tensor", entry.name, "is neither a parameter nor a constant");
    }
    if (std::ranges::none_of(spec_.params, &ExportedParam::trainable))
      fields_.fail("has no parameter to train");
  }

  [[noreturn]] static void fail_for(const char* what, const std::string& name,
                                    const char* problem) {
    throw Error(fmt::format("{} '{}': {}", what, name, problem));
  }

  const Safetensors& tensors_;
  JsonFields fields_;
  ExportedSpec spec_;
  std::map<std::string, ExportedSource> sources_;  // inputs and layers so far
  std::set<std::string> named_;                    // tensors
  std::set<int> read_layers_;
};

}  // namespace

std::int64_t ExportedInput::elements() const { return elements_of(shape); }

int ExportedLayer::param_of(int value) const {
  const int position = value - static_cast<int>(inputs.size());
  const bool is_param = position >= 0 && position < static_cast<int>(params.size());
  return is_param ? params[static_cast<std::size_t>(position)] : -1;
}

std::vector<std::int64_t> ExportedParam::shape() const {
  std::vector<std::int64_t> sizes = tensor.shape;
  if (part) sizes[static_cast<std::size_t>(part->dim)] /= part->pieces;
  return sizes;
}

ExportedSpec exported_spec(const std::string& text, const Safetensors& tensors,
                           const std::string& path) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) throw Error("has a document that is not JSON");
  JsonFields fields(document, "");
  const auto version = static_cast<std::uint64_t>(fields.integer("version", IntRange{.min = 1}));
  if (version > kExportedVersion) throw NewerFormat(path, version, kExportedVersion);
  return SpecReader(document, tensors).read();
}

}  // namespace spillway
