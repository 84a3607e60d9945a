#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "core/base/bfloat16.h"
#include "core/base/xxh3.h"
#include "core/spec/stored_tensor.h"
#include "models/exported/adapter.h"
#include "models/exported/exported_layer.h"
#include "models/graphs/graph_file.h"
#include "models/graphs/tensor_types.h"
#include "models/pieces/divide.h"
#include "spillway/error.h"
#include "spillway/exported.h"
#include "spillway/loss.h"
#include "spillway/model.h"
#include "spillway/model_builder.h"
#include "spillway/philox.h"

namespace spillway {
namespace {

constexpr int kRows = 0;  // the edge of the batch

at::Tensor read_tensor(const GraphFile& file, const TensorEntry& entry) {
  at::Tensor tensor = at::empty(entry.shape, scalar_type(entry));
  file.tensors().read(entry, 0,
                      {static_cast<std::byte*>(tensor.mutable_data_ptr()), entry.bytes()});
  return tensor;
}

bool is_frozen(const ExportedParam& param) { return !param.trainable && !param.is_statistic(); }

/// What all models of a factory share.
struct Loaded {
  explicit Loaded(const std::filesystem::path& path, const TorchPieces& pieces,
                  const LoraConfig* adapter = nullptr)
      : file(path), spec(file.spec()) {
    if (adapter != nullptr) add_adapter(spec, *adapter);
    divide(spec, pieces);
    for (const TensorEntry& entry : spec.constants) constants.push_back(read_tensor(file, entry));
    for (const ExportedParam& param : spec.params) {
      contents.push_back(is_frozen(param) ? content_of(param) : "");
    }
  }

  std::string content_of(const ExportedParam& param) const {
    std::string content = param.tensor.dtype + " " + file.xxh3(param.tensor);
    if (const auto& part = param.part) {
      content += fmt::format(" {}/{} of dimension {} in {}", part->piece, part->pieces, part->dim,
                             part->blocks);
    }
    return content;
  }

  std::vector<at::Tensor> constants_at(const std::vector<int>& numbers) const {
    std::vector<at::Tensor> chosen;
    for (const int number : numbers) chosen.push_back(constants[static_cast<std::size_t>(number)]);
    return chosen;
  }

  GraphFile file;
  ExportedSpec spec;  ///< of the file, with the adapter
  std::vector<at::Tensor> constants;
  std::vector<std::string> contents;  ///< by parameter; see ParamSpec::content
};

/// Values between -limit and limit: of a word's 24 upper bits, as LibTorch's uniform_. The key has
/// the step number of draws outside any step.
void write_uniform(double limit, std::span<float> values, std::uint64_t seed, std::uint32_t param) {
  constexpr std::uint32_t kInitialization = 0xFFFFFFFFu;
  PhiloxBlock words{};
  for (std::size_t e = 0; e < values.size(); ++e) {
    const auto block = static_cast<std::uint32_t>(e / words.size());
    if (e % words.size() == 0) words = philox({block, 0, param, kInitialization}, seed);
    const double unit = static_cast<double>(words[e % words.size()] >> 8) / (1 << 24);
    values[e] = static_cast<float>((2 * unit - 1) * limit);
  }
}

/// Writes elements of a tensor, from `begin` on, as f32 or i64, block by block.
void write_elements(const GraphFile& file, const TensorEntry& entry, Bytes begin, Bytes count,
                    std::byte* to) {
  const Bytes size = element_bytes(entry.dtype);
  if (entry.dtype != "BF16") return file.tensors().read(entry, begin * size, {to, count * size});
  std::vector<BFloat16> block(16384);
  auto* values = reinterpret_cast<float*>(to);
  for (const Bytes end = begin + count; begin < end;) {
    const auto part = std::span(block).first(std::min<Bytes>(block.size(), end - begin));
    file.tensors().read(entry, begin * size, std::as_writable_bytes(part));
    values = std::ranges::transform(part, values, to_float).out;
    begin += part.size();
  }
}

std::vector<Dim> dims_of(const std::vector<std::int64_t>& shape) {
  std::vector<Dim> dims;
  for (const std::int64_t size : shape) dims.push_back({fmt::format("dim{}", dims.size()), size});
  return dims;
}

/// What a piece of a layer holds of a tensor.
StoredSlice slice_of(const ExportedParam& param) {
  const ExportedPart& part = *param.part;
  const auto& shape = param.tensor.shape;
  const std::int64_t size = shape[static_cast<std::size_t>(part.dim)] / part.blocks;
  return {.name = param.tensor.name,
          .dims = dims_of(shape),
          .outer = std::accumulate(shape.begin(), shape.begin() + part.dim, part.blocks,
                                   std::multiplies<>()),
          .size = size,
          .begin = size / part.pieces * part.piece,
          .end = size / part.pieces * (part.piece + 1)};
}

/// XXH3 of everything that decides what a layer computes and costs.
class KindHash {
 public:
  void add(const std::string& text) {
    hash_.add(text.data(), text.size());
    hash_.add("", 1);
  }
  void add(const std::vector<std::int64_t>& shape, const std::string& type) {
    add(type);
    for (const std::int64_t size : shape) add(fmt::to_string(size));
  }
  void add(const at::Tensor& constant) {
    add(constant.sizes().vec(), c10::toString(constant.scalar_type()));
    hash_.add(constant.const_data_ptr(), constant.nbytes());
  }
  std::string kind() const { return "torch/" + hash_.hex(); }

 private:
  Xxh3 hash_;
};

/// Makes a Model of a file: the batch is edge 0, the layers follow.
class Lowering {
 public:
  explicit Lowering(std::shared_ptr<const Loaded> loaded)
      : loaded_(std::move(loaded)), spec_(loaded_->spec), builder_("torch") {}

  std::unique_ptr<Model> lower() && {
    builder_.add_batch(
        "rows", {spec_.row_dtype, {{"sample", spec_.batch_size}, {"value", spec_.row_elements}}});
    for (const ExportedInput& input : spec_.inputs) {
      if (input.limit > 0)
        builder_.spec().indices.push_back(
            {input.begin, input.begin + input.elements(), input.limit});
    }
    for (std::size_t p = 0; p < spec_.params.size(); ++p) {
      add_param(spec_.params[p], loaded_->contents[p]);
    }
    for (const ExportedLayer& layer : spec_.layers) add_layer(layer);
    add_loss();
    auto model = std::move(builder_).build();
    const auto specs = std::make_shared<const std::vector<ParamSpec>>(model->spec.params);
    model->initialize = [loaded = loaded_, specs](std::uint64_t seed,
                                                  std::span<std::byte* const> params) {
      for (std::uint32_t p = 0; p < params.size(); ++p) {
        if (params[p]) initialize(*loaded, (*specs)[p], seed, p, params[p]);
      }
    };
    model->map = [loaded = loaded_, specs](auto places) { return map(*loaded, *specs, places); };
    return model;
  }

 private:
  static void initialize(const Loaded& loaded, const ParamSpec& spec, std::uint64_t seed,
                         std::uint32_t p, std::byte* to) {
    const ExportedParam& param = loaded.spec.params[p];
    if (param.uniform) {
      const std::size_t values = param.tensor.bytes() / sizeof(float);
      return write_uniform(*param.uniform, {reinterpret_cast<float*>(to), values}, seed, p);
    }
    const Bytes size = size_of(spec.master().dtype);
    for_each_run(spec, [&](const StoredRun& run) {
      write_elements(loaded.file, param.tensor, static_cast<Bytes>(run.in_tensor),
                     static_cast<Bytes>(run.length), to + static_cast<Bytes>(run.in_param) * size);
    });
  }

  /// See Model::map.
  static std::shared_ptr<std::byte> map(const Loaded& loaded, const std::vector<ParamSpec>& specs,
                                        std::span<const Model::Place> places) {
    const auto param_at = [&](const Model::Place& place) -> const ExportedParam& {
      return loaded.spec.params[static_cast<std::size_t>(place.param)];
    };
    const auto type_in_memory = [&](const Model::Place& place) {
      return safetensors_dtype(specs[static_cast<std::size_t>(place.param)].master().dtype);
    };
    const Bytes begin = loaded.file.begin(param_at(places.front()).tensor);
    if (begin % kAlignment != 0) return nullptr;
    Bytes end = begin;
    for (const Model::Place& place : places) {
      const ExportedParam& param = param_at(place);
      const bool is_there = !param.uniform && !param.part &&
                            param.tensor.dtype == type_in_memory(place) &&
                            loaded.file.begin(param.tensor) == begin + place.offset;
      if (!is_there) return nullptr;
      end = begin + place.offset + param.tensor.bytes();
    }
    return end > begin ? loaded.file.map(begin, end - begin) : nullptr;
  }

  void add_param(const ExportedParam& param, const std::string& content) {
    ParamSpec made{.name = param.tensor.name,
                   .tensor = {type_of(spec_, param), dims_of(param.shape())},
                   .trainable = param.trainable,
                   .decay = param.decay,
                   .statistic = param.statistic,
                   .keeps_type = type_of(spec_, param) == DType::f32,
                   .content = content};
    if (param.part) {
      made.name += fmt::format("/{}", param.part->piece);
      made.stored = slice_of(param);
    }
    builder_.add_param(std::move(made));
  }

  /// `edges`: those that the layer reads, each once.
  std::vector<GraphInput> inputs_of(const std::vector<ExportedSource>& sources,
                                    std::vector<int>& edges, KindHash& hash) const {
    std::vector<GraphInput> inputs;
    for (const ExportedSource source : sources) {
      GraphInput input;
      if (source.input >= 0) {
        input.part = spec_.inputs[static_cast<std::size_t>(source.input)];
        hash.add(input.part->shape, fmt::format("row {} {}", static_cast<int>(spec_.row_dtype),
                                                static_cast<int>(input.part->type)));
      } else {
        const auto& layer = spec_.layers[static_cast<std::size_t>(source.layer)];
        hash.add(layer.shape, fmt::format("layer {}", static_cast<int>(layer.dtype)));
      }
      const int edge = source.input >= 0 ? kRows : edges_[static_cast<std::size_t>(source.layer)];
      const auto found = std::ranges::find(edges, edge);
      input.input = static_cast<std::size_t>(found - edges.begin());
      if (found == edges.end()) edges.push_back(edge);
      inputs.push_back(std::move(input));
    }
    return inputs;
  }

  void add_graph(int number, KindHash& hash) const {
    hash.add(spec_.graphs[static_cast<std::size_t>(number)].json);
  }

  void add_layer(const ExportedLayer& layer) {
    KindHash hash;
    LayerSpec made{.name = layer.name,
                   .params = layer.params,
                   .piece = layer.piece,
                   .pieces = layer.pieces,
                   .draws_as = layer.draws_as};
    auto inputs = inputs_of(layer.inputs, made.inputs, hash);
    for (const int p : layer.params) {
      const auto& param = spec_.params[static_cast<std::size_t>(p)];
      hash.add(param.shape(), fmt::format("{} {}", static_cast<int>(type_of(spec_, param)),
                                          param.trainable ? "trained" : "fixed"));
    }
    auto constants = loaded_->constants_at(layer.constants);
    for (const at::Tensor& constant : constants) hash.add(constant);
    add_graph(layer.train, hash);
    add_graph(layer.eval, hash);
    hash.add(layer.shape, fmt::to_string(static_cast<int>(layer.dtype)));
    made.kind = hash.kind();
    std::vector<Dim> dims = dims_of(layer.shape);
    if (!dims.empty() && dims[0].size == spec_.batch_size) dims[0].name = "sample";
    auto run = make_exported_layer(spec_, layer, std::move(inputs), std::move(constants));
    TensorSpec output{layer.dtype, std::move(dims)};
    if (layer.makes_term) {
      edges_.push_back(builder_.add_term(
          std::move(made), std::move(run),
          {.name = layer.name + ".sum", .tensor = output, .differentiable = layer.differentiable}));
    } else {
      edges_.push_back(builder_.add_layer(std::move(made), std::move(run), output));
      builder_.spec().edges.back().differentiable = layer.differentiable;
    }
  }

  void add_loss() {
    const ExportedLoss& loss = spec_.loss;
    KindHash hash;
    LayerSpec made{.name = "loss", .draws_as = loss.draws_as};
    auto inputs = inputs_of(loss.inputs, made.inputs, hash);
    auto constants = loaded_->constants_at(loss.constants);
    for (const at::Tensor& constant : constants) hash.add(constant);
    hash.add(fmt::format("{} {} {:a}", static_cast<int>(loss.kind), loss.ignore_index,
                         loss.label_smoothing));
    if (loss.kind == ExportedLoss::Kind::graph) {
      add_graph(loss.train, hash);
      add_graph(loss.eval, hash);
    }
    made.kind = hash.kind();
    if (spec_.has_accuracy) builder_.spec().metrics.push_back(accuracy().spec);
    if (spec_.has_perplexity) builder_.spec().metrics.push_back(perplexity().spec);
    builder_.spec().has_predictions = loss.kind != ExportedLoss::Kind::divided;
    builder_.add_loss(std::move(made),
                      make_exported_loss(spec_, std::move(inputs), std::move(constants)));
  }

  std::shared_ptr<const Loaded> loaded_;
  const ExportedSpec& spec_;
  ModelBuilder builder_;
  std::vector<int> edges_;  // by layer
};

std::unique_ptr<Model> lower(const std::shared_ptr<const Loaded>& loaded) {
  try {
    return Lowering(loaded).lower();
  } catch (const Error& error) {
    throw CorruptData(loaded->file.path(), fmt::format("is not a valid model: {}", error.what()));
  }
}

void check_vn_size(const std::string& path, std::int64_t vn_size, std::int64_t batch_size) {
  if (vn_size == batch_size) return;
  throw ConfigError("train.virtual_nodes", 0,
                    fmt::format("makes virtual nodes of {} samples, but '{}' was exported for {}; "
                                "use train.batch_size / {}",
                                vn_size, path, batch_size, batch_size));
}

ModelFactory factory_of(const std::shared_ptr<const Loaded>& loaded) {
  lower(loaded);  // finds what cannot run
  return [loaded](std::int64_t vn_size) {
    check_vn_size(loaded->file.path(), vn_size, loaded->spec.batch_size);
    return lower(loaded);
  };
}

std::string name_of(ValueType type) {
  if (type == ValueType::boolean) return "bool";
  return type == ValueType::i64 ? "int64" : "float32";
}

}  // namespace

ExportedInfo exported_info(const std::filesystem::path& path) {
  const GraphFile file(path);
  const ExportedSpec& spec = file.spec();
  ExportedInfo info{.name = spec.name,
                    .batch_size = spec.batch_size,
                    .dtype = spec.dtype,
                    .row_dtype = spec.row_dtype,
                    .row_elements = spec.row_elements,
                    .num_layers = std::ssize(spec.layers) + 1,
                    .xxh3 = file.xxh3()};
  for (const ExportedInput& input : spec.inputs) {
    info.inputs.push_back({input.name, input.begin, input.shape, name_of(input.type), input.limit});
  }
  if (spec.has_accuracy) info.metrics.emplace_back("accuracy");
  if (spec.has_perplexity) info.metrics.emplace_back("perplexity");
  return info;
}

TorchPieces possible_pieces(const std::filesystem::path& path, const TorchPieces& wanted) {
  return possible_pieces(GraphFile(path).spec(), wanted);
}

ModelFactory exported_factory(const std::filesystem::path& path, const TorchPieces& pieces) {
  return factory_of(std::make_shared<const Loaded>(path, pieces));
}

ModelFactory adapted_factory(const std::filesystem::path& path, const LoraConfig& adapter) {
  return factory_of(std::make_shared<const Loaded>(path, TorchPieces{}, &adapter));
}

}  // namespace spillway
