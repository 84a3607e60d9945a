#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "models/base/model_checks.h"
#include "models/modules/graph_impl.h"
#include "models/modules/seeded_generator.h"
#include "spillway/error.h"
#include "spillway/model.h"
#include "spillway/model_builder.h"

/// Makes a Model of a Graph.
namespace spillway {
namespace {

using Make = std::function<void(Graph&)>;
using Piece = GraphAccess::Impl::Piece;

/// Inside a SeededGenerator.
std::unique_ptr<Graph> build(const Make& make) {
  const c10::AutoGradMode grad(true);
  auto graph = std::make_unique<Graph>();
  make(*graph);
  return graph;
}

/// The state of a module in the order of its layer's parameters.
struct NamedState {
  std::string name;
  at::Tensor value;
  StatisticSpec statistic;
  bool is_buffer = false;
  bool is_of_norm = false;
};

std::vector<NamedState> state_of(const CheckedModule& module) {
  std::vector<NamedState> state;
  const ModuleStatistics statistics = module.statistics();
  for (auto& [name, value] : module.parameters()) {
    state.push_back({.name = name, .value = value, .is_of_norm = statistics.is_of_norm(value)});
  }
  for (const auto& statistic : statistics.all()) {
    state.push_back({statistic.name, statistic.buffer, statistic.spec, false});
  }
  for (auto& [name, value] : module.buffers()) state.push_back({name, value, {}, true});
  return state;
}

ParamSpec param_of(const std::string& layer, const NamedState& state) {
  const at::Tensor& value = state.value;
  ParamSpec param{.name = layer + "." + state.name,
                  .trainable = value.requires_grad() && !state.is_buffer,
                  .decay = value.dim() >= 2 && !state.is_buffer,
                  .statistic = state.statistic,
                  .keeps_type = state.is_of_norm};
  if (value.scalar_type() == at::kLong) param.tensor.dtype = DType::i64;
  for (const std::int64_t size : value.sizes()) {
    param.tensor.dims.push_back({fmt::format("dim{}", param.tensor.dims.size()), size});
  }
  return param;
}

TensorSpec spec_of(const at::Tensor& probe, std::int64_t vn_size) {
  TensorSpec spec{DType::f32, {{"sample", vn_size}}};
  for (std::int64_t d = 1; d < probe.dim(); ++d) {
    spec.dims.push_back({fmt::format("dim{}", d), probe.size(d)});
  }
  return spec;
}

/// Numbers the parameters of a model: a tensor that several layers have is one parameter.
class Parameters {
 public:
  explicit Parameters(ModelBuilder& builder) : builder_(builder) {}

  struct Numbers {
    std::vector<int> params;
    bool is_tied = false;  ///< an earlier layer has one of them too
  };

  Numbers number(const std::string& layer, const CheckedModule& module) {
    Numbers numbers;
    for (const NamedState& state : state_of(module)) {
      const void* const memory = state.value.storage().unsafeGetStorageImpl();
      const auto known = known_.find(memory);
      if (known == known_.end()) {
        known_[memory] = {state.value, builder_.add_param(param_of(layer, state))};
      } else {
        require_tied(layer, state, known->second);
        numbers.is_tied = true;
      }
      numbers.params.push_back(known_[memory].param);
    }
    return numbers;
  }

 private:
  struct Known {
    at::Tensor value;
    int param = -1;
  };

  void require_tied(const std::string& layer, const NamedState& state, const Known& known) const {
    if (state.statistic.kind != StatisticSpec::Kind::none) {
      reject_model(
          fmt::format("layer '{}' shares the batch norm of another layer; give it its own", layer));
    }
    if (!state.value.is_same(known.value)) {
      reject_model(
          fmt::format("layer '{}' has the parameter '{}', which is a view of another one; tie "
                      "parameters by using the same tensor",
                      layer, state.name));
    }
  }

  ModelBuilder& builder_;
  std::map<const void*, Known> known_;
};

/// The batch is edge 0; the layers follow.
class GraphLowering {
 public:
  GraphLowering(const Make& make, const GraphIdentity& identity, std::int64_t vn_size)
      : make_(make),
        identity_(identity),
        vn_size_(vn_size),
        graph_(build(make)),
        impl_(GraphAccess::impl(*graph_)),
        builder_(identity.family) {}

  std::unique_ptr<Model> lower() && {
    if (!impl_.has_loss()) reject_model("has no loss; add one");
    add_batch();
    for (const Piece& piece : impl_.pieces) {  // before the first layer takes a module's tensors
      const auto* module = std::get_if<CheckedModule>(&piece.work);
      numbers_.push_back(module != nullptr ? parameters_.number(piece.name, *module)
                                           : Parameters::Numbers());
    }
    for (std::size_t p = 0; p < impl_.pieces.size(); ++p) add(p);
    return std::move(builder_).build();
  }

 private:
  static constexpr int kBatch = 0;

  void add_batch() {
    std::int64_t elements = 0;
    DType dtype = DType::i64;
    for (const auto& value : impl_.values) {
      if (!value.part) continue;
      const std::int64_t begin = std::exchange(elements, elements + value.part->elements());
      if (value.part->dtype == DType::f32) dtype = DType::f32;
      if (value.limit > 0) builder_.spec().indices.push_back({begin, elements, value.limit});
    }
    if (elements == 0) reject_model("has no inputs");
    builder_.add_batch("rows", {dtype, {{"sample", vn_size_}, {"value", elements}}});
  }

  void add(std::size_t p) {
    const Piece& piece = impl_.pieces[p];
    LayerSpec layer{.name = piece.name, .kind = kind_of(piece)};
    std::vector<Argument> arguments = arguments_of(piece, layer.inputs);
    if (const auto* loss = std::get_if<LossFunction>(&piece.work)) {
      for (const Metric& metric : piece.metrics) builder_.spec().metrics.push_back(metric.spec);
      return builder_.add_loss(std::move(layer),
                               make_loss_layer(*loss, piece.metrics, std::move(arguments)));
    }
    const auto& value = impl_.values[static_cast<std::size_t>(piece.value)];
    if (value.num_readers == 0) {
      reject_model(fmt::format("layer '{}' is read by no other layer; use its output, or remove it",
                               piece.name));
    }
    detail::check_vn_size(vn_size_, value.probe.numel() / CheckedModule::kProbe);
    auto made = make_layer(p, layer, std::move(arguments));
    edges_[piece.value] =
        builder_.add_layer(std::move(layer), std::move(made), spec_of(value.probe, vn_size_));
    builder_.spec().edges.back().differentiable = value.probe.requires_grad();
  }

  std::unique_ptr<Layer> make_layer(std::size_t p, LayerSpec& layer,
                                    std::vector<Argument> arguments) {
    const Piece& piece = impl_.pieces[p];
    const auto* module = std::get_if<CheckedModule>(&piece.work);
    if (module == nullptr) {
      return make_function_layer(std::get<Graph::Function>(piece.work), std::move(arguments));
    }
    layer.params = numbers_[p].params;
    layer.keeps_graph = false;  // the module is leased
    if (!numbers_[p].is_tied) return make_module_layer(module->module(), std::move(arguments));
    // Each layer points the tensors of its module at memory of its own: it needs its own module.
    const auto again = build(make_);
    const auto& pieces = GraphAccess::impl(*again).pieces;
    if (p >= pieces.size() || pieces[p].name != piece.name) {
      throw Error(
          "the function that makes the model returned a different model than before; it must make "
          "the same one each time");
    }
    return make_module_layer(std::get<CheckedModule>(pieces[p].work).module(),
                             std::move(arguments));
  }

  std::string kind_of(const Piece& piece) const {
    const bool is_loss = std::holds_alternative<LossFunction>(piece.work);
    if (is_loss && !identity_.loss_kind.empty()) return identity_.loss_kind;
    const auto* module = std::get_if<CheckedModule>(&piece.work);
    return identity_.prefix + (module != nullptr ? module->kind() : piece.name);
  }

  /// `edges`: those that the layer reads, each once.
  std::vector<Argument> arguments_of(const Piece& piece, std::vector<int>& edges) const {
    std::vector<Argument> arguments;
    for (const Graph::Node node : piece.inputs) {
      const auto& value = impl_.values[static_cast<std::size_t>(node.index)];
      const int edge = value.part ? kBatch : edges_.at(node.index);
      const auto found = std::ranges::find(edges, edge);
      arguments.push_back(
          {.input = static_cast<std::size_t>(found - edges.begin()), .part = value.part});
      if (found == edges.end()) edges.push_back(edge);
    }
    return arguments;
  }

  const Make& make_;
  const GraphIdentity& identity_;
  const std::int64_t vn_size_;
  const std::unique_ptr<Graph> graph_;
  const GraphAccess::Impl& impl_;
  ModelBuilder builder_;
  Parameters parameters_{builder_};
  std::vector<Parameters::Numbers> numbers_;  // of each piece
  std::map<int, int> edges_;                  // by the number of a node
};

/// Writes what `make` makes after manual_seed(seed).
void initialize(const Make& make, const ModelSpec& spec, std::uint64_t seed,
                std::span<std::byte* const> params) {
  const SeededGenerator seeded(seed);
  const auto graph = build(make);
  ModelBuilder again(spec.family);
  Parameters numbers(again);
  std::vector<at::Tensor> values;
  for (const Piece& piece : GraphAccess::impl(*graph).pieces) {
    const auto* module = std::get_if<CheckedModule>(&piece.work);
    if (module == nullptr) continue;
    const std::vector<int> of_layer = numbers.number(piece.name, *module).params;
    const std::vector<NamedState> state = state_of(*module);
    values.resize(again.spec().params.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      values[static_cast<std::size_t>(of_layer[i])] = state[i].value.detach().contiguous();
    }
  }
  const auto is_same = [](const at::Tensor& value, const ParamSpec& param) {
    return value.sizes().vec() == param.tensor.shape();
  };
  if (!std::ranges::equal(values, spec.params, is_same)) {
    throw Error(
        "the function that makes the model returned a different model than before; it must make "
        "the same one each time");
  }
  for (std::size_t p = 0; p < params.size(); ++p) {
    std::memcpy(params[p], values[p].const_data_ptr(), values[p].nbytes());
  }
}

}  // namespace

ModelFactory graph_factory(std::function<void(Graph&)> make, GraphIdentity identity) {
  return [make = std::move(make), identity = std::move(identity)](std::int64_t vn_size) {
    std::unique_ptr<Model> model;
    {
      const SeededGenerator seeded(0);
      model = GraphLowering(make, identity, vn_size).lower();
    }
    model->initialize = [make, spec = model->spec](std::uint64_t seed,
                                                   std::span<std::byte* const> params) {
      initialize(make, spec, seed, params);
    };
    return model;
  };
}

ModelFactory graph_factory(std::function<void(Graph&)> make, std::string name) {
  return graph_factory(
      std::move(make),
      GraphIdentity{.family = "graph", .prefix = "graph/" + (name.empty() ? "" : name + "/")});
}

}  // namespace spillway
