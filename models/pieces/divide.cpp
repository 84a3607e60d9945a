#include "models/pieces/divide.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/base/config_check.h"
#include "models/pieces/layer_pieces.h"
#include "models/pieces/piece_writer.h"
#include "models/pieces/pieces_fields.h"
#include "spillway/error.h"

namespace spillway {
namespace {

constexpr const char* kPrefix = "model.pieces.";

std::size_t at(int number) { return static_cast<std::size_t>(number); }

/// Why no layer is divided in a way, for messages.
struct Tries {
  std::int64_t pieces = 1;
  bool has_divided = false;
  std::string reason = {};  ///< of the first layer that could not be divided

  bool are_wanted() const { return pieces > 1; }
  void note(const std::string& problem) {
    if (reason.empty()) reason = problem;
  }
  void note(const std::string& layer, const Indivisible& problem) {
    note(fmt::format("layer '{}': {}", layer, problem.reason));
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
    num_draws_ = static_cast<int>(whole.size()) + 1;
    for (std::size_t l = 0; l < whole.size(); ++l) {
      ExportedLayer& layer = whole[l];
      layer.draws_as = static_cast<int>(l);
      names_.insert(layer.name);
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

  /// Whether the layers that share vocabulary parameters of these pieces are all divided.
  bool is_shared_by_all(const LayerPieces& pieces) const {
    return std::ranges::all_of(pieces.params, [&](const auto& param) {
      const auto count = vocabulary_uses_.find({param.first, pieces.pieces});
      return count != vocabulary_uses_.end() && count->second == uses_[at(param.first)];
    });
  }
  void require_untied(const LayerPieces& pieces) const {
    for (const auto& [param, division] : pieces.params) {
      if (uses_[at(param)] > 1)
        throw Indivisible{fmt::format("'{}' is tied", spec_.params[at(param)].tensor.name)};
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
  /// The layer's name or, for what is divided in it later, the name with a number.
  std::string name_of_pieces(const std::string& layer);

  ExportedSpec& spec_;
  const TorchPieces& pieces_;
  Tries attention_, mlp_, vocabulary_, linear_;
  std::vector<int> uses_;  // by parameter: layers
  /// By parameter and number of pieces: layers that can have so many.
  std::map<std::pair<int, int>, int> vocabulary_uses_;
  std::optional<int> head_;                   // the layer before the loss, if it is divided
  bool is_head_ = false;                      // of the layer that is added
  std::vector<int> numbers_;                  // by whole layer: the last one that stands for it
  std::map<std::pair<int, int>, int> parts_;  // by parameter and piece
  std::set<std::string> names_, divided_names_;
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
  std::optional<LayerPieces> of_head;
  for (std::size_t l = 0; l < spec_.layers.size(); ++l) {
    try {
      const LayerFacts facts = facts_of(spec_, spec_.layers[l]);
      const bool is_head = has_classes && last == static_cast<int>(l);
      const auto found = find_vocabulary_in(facts, is_head);
      if (!found) continue;
      for (const auto& [param, division] : found->params)
        ++vocabulary_uses_[{param, found->pieces}];
      if (found->kind == PiecesKind::head) of_head = found;
    } catch (const Indivisible& problem) {
      vocabulary_.note(spec_.layers[l].name, problem);
    }
  }
  if (of_head && is_shared_by_all(*of_head)) head_ = last;
  for (const auto& [key, count] : vocabulary_uses_) {
    if (count == uses_[at(key.first)]) continue;
    vocabulary_.note(fmt::format("parameter '{}' is tied to a layer that stays whole",
                                 spec_.params[at(key.first)].tensor.name));
  }
}

std::optional<LayerPieces> Divider::find(const LayerFacts& facts) {
  const std::string& name = facts.layer->name;
  if (vocabulary_.are_wanted()) {
    const auto found = find_vocabulary_in(facts, is_head_);
    if (found && is_shared_by_all(*found)) return found;
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
      (facts.attends() ? attention_ : mlp_).note(name, problem);
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

std::string Divider::name_of_pieces(const std::string& layer) {
  std::string name = layer;
  for (int i = 2; !divided_names_.insert(name).second; ++i) name = fmt::format("{}.{}", layer, i);
  return name;
}

int Divider::add_divided(const LayerFacts& facts, const LayerPieces& pieces) {
  const bool is_head = std::exchange(is_head_, false);
  const std::string name = name_of_pieces(facts.layer->name);
  PieceWriter writer(spec_, facts, pieces);
  ExportedSource computed;
  if (pieces.sides[0].computed >= 0) {
    ExportedLayer before = writer.before(name + ".input");
    before.draws_as = num_draws_++;
    computed.layer = add(std::move(before));
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
  Tries* const tries[] = {&attention_, &mlp_, &linear_, &vocabulary_, &vocabulary_};
  tries[static_cast<std::size_t>(pieces.kind)]->has_divided = true;
  if (is_head) {
    spec_.loss.kind = ExportedLoss::Kind::divided;
    joined.push_back(targets);
    spec_.loss.inputs = std::move(joined);
    return static_cast<int>(spec_.layers.size()) - 1;
  }
  if (pieces.makes_terms()) joined.resize(1);
  return add(writer.after(facts.layer->name, computed, joined));
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
    check.require(!tries.are_wanted() || tries.has_divided, field,
                  fmt::format("is {}, but no {} of model '{}' can be divided: {}; write another "
                              "number, or 1",
                              tries.pieces, what, spec_.name, reason));
  };
  require(attention_, "attention", "attention");
  require(mlp_, "mlp", "MLP");
  require(vocabulary_, "vocabulary", "embedding or output layer");
  require(linear_, "linear", "other linear layer");
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
    for (int& p : layer.params) p = numbers[at(p)];
  }
}

}  // namespace

void divide(ExportedSpec& spec, const TorchPieces& pieces) {
  ConfigCheck check(kPrefix);
  FieldCheck fields(check);
  visit_torch_pieces(pieces, fields);
  check.finish();
  if (pieces != TorchPieces{}) Divider(spec, pieces).divide();
}

}  // namespace spillway
