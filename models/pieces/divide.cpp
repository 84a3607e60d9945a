#include "models/pieces/divide.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/base/config_check.h"
#include "models/pieces/layer_pieces.h"
#include "models/pieces/piece_writer.h"
#include "models/pieces/pieces_fields.h"
#include "spillway/error.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

constexpr const char* kPrefix = "model.pieces.";

/// Why no layer is divided in a way, for messages.
struct Tries {
  std::int64_t pieces = 1;
  bool has_divided = false;
  std::string reason = {};  ///< of the layer that says most; of several, the first
  Indivisible::Cause cause = {};

  bool are_wanted() const { return pieces > 1; }
  void note(const Indivisible& problem) {
    if (!reason.empty() && problem.cause <= cause) return;
    reason = problem.reason;
    cause = problem.cause;
  }
  void note(const std::string& layer, const Indivisible& problem) {
    note({fmt::format("layer '{}': {}", layer, problem.reason), problem.cause});
  }
};

class Divider {
 public:
  Divider(ExportedSpec& spec, const TorchPieces& pieces)
      : spec_(spec),
        pieces_(pieces),
        attention_{pieces.attention},
        mlp_{pieces.mlp},
        vocabulary_{pieces.vocabulary},
        linear_{pieces.linear} {}

  void divide() && {
    count_uses();
    find_vocabulary();
    std::vector<ExportedLayer> whole = std::exchange(spec_.layers, {});
    spec_.loss.draws_as = static_cast<int>(whole.size());
    num_draws_ = spec_.loss.draws_as + 1;
    for (const ExportedLayer& layer : whole) names_.insert(layer.name);
    for (std::size_t l = 0; l < whole.size(); ++l) {
      ExportedLayer& layer = whole[l];
      layer.draws_as = static_cast<int>(l);
      move_sources(layer.inputs);
      is_head_ = head_ && head_ == static_cast<int>(l);
      numbers_.push_back(add(std::move(layer)));
    }
    if (!head_) move_sources(spec_.loss.inputs);
    check();
    replace_params();
  }

 private:
  void count_uses();
  void find_vocabulary();
  void check() const;
  void replace_params();

  void move_sources(std::vector<ExportedSource>& sources) const {
    for (ExportedSource& source : sources) {
      if (source.layer >= 0) source.layer = numbers_[at(source.layer)];
    }
  }

  /// A parameter and how it would be divided.
  using Use = std::tuple<int, Division, int>;
  bool is_shared(const LayerPieces& pieces);
  void require_untied(const LayerPieces& pieces) const {
    for (const auto& [param, division] : pieces.params) {
      if (uses_[at(param)] > 1)
        throw Indivisible{
            fmt::format("parameter '{}' is tied", spec_.params[at(param)].tensor.name)};
    }
  }

  std::optional<LayerPieces> find(const LayerFacts& facts);
  std::optional<LayerPieces> find_vocabulary_in(const LayerFacts& facts, bool is_head);
  /// Adds the layer, or what stands for it. Returns the number of the last one.
  int add(ExportedLayer layer);
  int add_divided(const LayerFacts& facts, const LayerPieces& pieces);
  int append(ExportedLayer layer) {
    spec_.layers.push_back(std::move(layer));
    return static_cast<int>(spec_.layers.size()) - 1;
  }
  int part_of(int param, int piece, const LayerPieces& pieces);
  /// The name or, if a layer has it, the name with a number.
  std::string free_name(const std::string& wanted);
  void rename_pieces(std::size_t begin, std::size_t end, const std::string& name) {
    for (std::size_t l = begin; l < end; ++l)
      spec_.layers[l].name = fmt::format("{}/{}", name, spec_.layers[l].piece);
  }
  Tries& tries_of(PiecesKind kind);

  ExportedSpec& spec_;
  const TorchPieces& pieces_;
  Tries attention_, mlp_, vocabulary_, linear_;
  std::vector<int> uses_;                     // by parameter: layers
  std::map<Use, int> vocabulary_uses_;        // layers that can be divided so
  std::optional<int> head_;                   // the layer before the loss, if it is divided
  bool is_head_ = false;                      // of the layer that is added
  std::vector<int> numbers_;                  // by whole layer: the last one that stands for it
  std::map<std::pair<int, int>, int> parts_;  // by parameter and piece
  std::set<std::string> names_;               // of layers
  int num_draws_ = 0;
};

void Divider::count_uses() {
  uses_.resize(spec_.params.size());
  for (const ExportedLayer& layer : spec_.layers) {
    for (const int p : layer.params) ++uses_[at(p)];
  }
}

std::optional<LayerPieces> Divider::find_vocabulary_in(const LayerFacts& facts, bool is_head) {
  if (is_head) {
    try {
      return pieces_of_head(spec_, facts, pieces_.vocabulary);
    } catch (const Indivisible& problem) {
      vocabulary_.note(facts.layer->name, problem);
    }
  }
  try {
    return pieces_of_embedding(spec_, facts, pieces_.vocabulary);
  } catch (const Indivisible& problem) {
    if (problem.cause != Indivisible::Cause::structure)
      vocabulary_.note(facts.layer->name, problem);
    return std::nullopt;
  }
}

/// A tied vocabulary is divided everywhere or nowhere.
void Divider::find_vocabulary() {
  if (!vocabulary_.are_wanted()) return;
  const ExportedLoss& loss = spec_.loss;
  const int last = loss.inputs.front().layer;
  const bool has_classes =
      loss.kind == ExportedLoss::Kind::cross_entropy && loss.label_smoothing == 0 &&
      std::ranges::none_of(spec_.layers, [&](const ExportedLayer& layer) {
        return std::ranges::count(layer.inputs, last, &ExportedSource::layer) > 0;
      });
  std::map<int, LayerPieces> found;  // by layer
  for (int l = 0; l < static_cast<int>(spec_.layers.size()); ++l) {
    try {
      const LayerFacts facts = facts_of(spec_, spec_.layers[at(l)]);
      auto pieces = find_vocabulary_in(facts, has_classes && last == l);
      if (pieces) found.emplace(l, *std::move(pieces));
    } catch (const Indivisible& problem) {
      vocabulary_.note(spec_.layers[at(l)].name, problem);
    }
  }
  const auto count = [&] {
    vocabulary_uses_.clear();
    for (const auto& [l, pieces] : found) {
      for (const auto& [param, division] : pieces.params)
        ++vocabulary_uses_[{param, division, pieces.pieces}];
    }
  };
  count();
  // A layer that stays whole keeps others whole with which it shares a parameter.
  while (std::erase_if(found, [&](const auto& each) { return !is_shared(each.second); }) > 0)
    count();
  if (found.contains(last) && found.at(last).kind == PiecesKind::head) head_ = last;
}

/// Whether all layers with a parameter of these pieces can be divided in the same way.
bool Divider::is_shared(const LayerPieces& pieces) {
  for (const auto& [param, division] : pieces.params) {
    const auto count = vocabulary_uses_.find({param, division, pieces.pieces});
    if (count != vocabulary_uses_.end() && count->second == uses_[at(param)]) continue;
    vocabulary_.note({fmt::format("parameter '{}' is tied to a layer that stays whole",
                                  spec_.params[at(param)].tensor.name)});
    return false;
  }
  return true;
}

std::optional<LayerPieces> Divider::find(const LayerFacts& facts) {
  const std::string& name = facts.layer->name;
  if (vocabulary_.are_wanted()) {
    const auto found = find_vocabulary_in(facts, is_head_);
    if (found && is_shared(*found)) return found;
  }
  std::vector<int> matrices = facts.matrices();
  std::ranges::reverse(matrices);
  for (const int matrix : matrices) {
    if (!attention_.are_wanted() && !mlp_.are_wanted()) break;
    try {
      auto found = pieces_before(spec_, facts, matrix, pieces_);
      if (!found) continue;
      require_untied(*found);
      return found;
    } catch (const Indivisible& problem) {
      // If the layer has an attention, this may still be why its MLP stays whole.
      (facts.attends() ? attention_ : mlp_).note(name, problem);
      mlp_.note(name, {problem.reason, Indivisible::Cause::structure});
    }
  }
  for (const int matrix : matrices) {
    if (!linear_.are_wanted()) break;
    try {
      auto found = pieces_of_product(spec_, facts, matrix, pieces_.linear);
      require_untied(found);
      return found;
    } catch (const Indivisible& problem) {
      linear_.note(name, problem);
    }
  }
  return std::nullopt;
}

int Divider::add(ExportedLayer layer) {
  try {
    const LayerFacts facts = facts_of(spec_, layer);
    if (const auto pieces = find(facts)) return add_divided(facts, *pieces);
  } catch (const Indivisible& problem) {
    for (Tries* tries : {&attention_, &mlp_, &vocabulary_, &linear_})
      tries->note(layer.name, problem);
  }
  return append(std::move(layer));
}

std::string Divider::free_name(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; !names_.insert(name).second; ++i) name = fmt::format("{}.{}", wanted, i);
  return name;
}

Tries& Divider::tries_of(PiecesKind kind) {
  switch (kind) {
    case PiecesKind::attention:
      return attention_;
    case PiecesKind::mlp:
      return mlp_;
    case PiecesKind::linear:
      return linear_;
    default:
      return vocabulary_;
  }
}

int Divider::add_divided(const LayerFacts& facts, const LayerPieces& pieces) {
  const bool is_head = std::exchange(is_head_, false);
  const std::string& layer = facts.layer->name;
  const std::string name = names_.contains(layer + "/0") ? free_name(layer) : layer;
  PieceWriter writer(spec_, facts, pieces);
  ExportedSource computed;
  if (pieces.sides[0].computed >= 0) {
    computed.layer = add(writer.before(free_name(name + "_input")));
  }
  const ExportedSource targets = is_head ? spec_.loss.inputs[1] : ExportedSource();
  std::vector<ExportedSource> joined;
  for (int piece = 0; piece < pieces.pieces; ++piece) {
    ExportedLayer made =
        writer.piece(fmt::format("{}/{}", name, piece), piece, computed, targets,
                     [&](int param, int number) { return part_of(param, number, pieces); });
    made.draws_as = num_draws_++;
    joined.push_back({.layer = append(std::move(made))});
  }
  tries_of(pieces.kind).has_divided = true;
  if (is_head) {
    spec_.loss.kind = ExportedLoss::Kind::divided;
    spec_.loss.classes = facts.layer->shape.back();
    joined.push_back(targets);
    spec_.loss.inputs = std::move(joined);
    return static_cast<int>(spec_.layers.size()) - 1;
  }
  const std::size_t first = at(joined.front().layer), end = spec_.layers.size();
  if (pieces.makes_terms()) joined.resize(1);
  const int last = add(writer.after(layer, computed, joined));
  // If that was divided, too, only its pieces come just before the layer and have its name.
  if (at(last) > end) rename_pieces(first, end, free_name(layer));
  return last;
}

int Divider::part_of(int param, int piece, const LayerPieces& pieces) {
  const auto [known, is_new] =
      parts_.try_emplace({param, piece}, static_cast<int>(spec_.params.size()));
  if (is_new) {
    ExportedParam part = spec_.params[at(param)];
    const Division& division = pieces.params.at(param);
    part.part = {
        .dim = division.dim, .blocks = division.blocks, .piece = piece, .pieces = pieces.pieces};
    spec_.params.push_back(std::move(part));
    uses_.push_back(1);
  }
  return known->second;
}

void Divider::check() const {
  ConfigCheck check(kPrefix);
  const auto require = [&](const Tries& tries, const char* field, const char* what) {
    const std::string reason =
        tries.reason.empty() ? fmt::format("it has no {}", what) : tries.reason;
    check.require(
        !tries.are_wanted() || tries.has_divided, field,
        fmt::format("is {}, but no {} of model '{}' can be divided: {}; write {}1", tries.pieces,
                    what, spec_.name, reason,
                    tries.cause == Indivisible::Cause::size ? "another number, or " : ""));
  };
  require(attention_, "attention", "attention");
  require(mlp_, "mlp", "MLP");
  require(vocabulary_, "vocabulary", "embedding or output layer");
  require(linear_, "linear", "linear layer");
  check.finish();
}

/// In the place of each divided parameter stand its parts, in order.
void Divider::replace_params() {
  std::vector<ExportedParam> params;
  std::vector<int> numbers(spec_.params.size(), -1);
  const auto keep = [&](int number) {
    numbers[at(number)] = static_cast<int>(params.size());
    params.push_back(std::move(spec_.params[at(number)]));
  };
  const auto num_whole = static_cast<int>(spec_.params.size() - parts_.size());
  for (int p = 0; p < num_whole; ++p) {
    auto part = parts_.find({p, 0});
    if (part == parts_.end()) keep(p);
    for (; part != parts_.end() && part->first.first == p; ++part) keep(part->second);
  }
  spec_.params = std::move(params);
  for (ExportedLayer& layer : spec_.layers) {
    for (int& p : layer.params) {
      p = numbers[at(p)];
      assert(p >= 0);  // no layer has a divided parameter as a whole
    }
  }
}

}  // namespace

TorchPieces possible_pieces(const ExportedSpec& spec, const TorchPieces& wanted) {
  TorchPieces possible;
  for (auto kind : {&TorchPieces::attention, &TorchPieces::mlp, &TorchPieces::vocabulary,
                    &TorchPieces::linear}) {
    TorchPieces only;
    only.*kind = wanted.*kind;
    ExportedSpec divided = spec;
    try {
      divide(divided, only);
      possible.*kind = wanted.*kind;
    } catch (const ConfigError&) {
    }
  }
  return possible;
}

void divide(ExportedSpec& spec, const TorchPieces& pieces) {
  ConfigCheck check(kPrefix);
  FieldCheck fields(check);
  visit_torch_pieces(pieces, fields);
  check.finish();
  if (pieces != TorchPieces{}) Divider(spec, pieces).divide();
}

}  // namespace spillway
