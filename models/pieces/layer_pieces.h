#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "models/graphs/exported_spec.h"
#include "models/graphs/graph_facts.h"
#include "models/pieces/division.h"
#include "models/pieces/graph_region.h"
#include "spillway/torch_pieces.h"

namespace spillway {

/// A layer to divide, with what is known of its two graphs: in training and in evaluation.
struct LayerFacts {
  const ExportedLayer* layer = nullptr;
  std::array<std::unique_ptr<GraphFacts>, 2> sides;

  int num_inputs() const { return static_cast<int>(layer->inputs.size()); }
  int num_params() const { return static_cast<int>(layer->params.size()); }
  bool is_input(int value) const { return value < num_inputs(); }
  /// The values that are matrices by which a node of the training graph multiplies.
  std::vector<int> matrices() const;
  /// The values that are parameters and that no node reads, such as counts of steps.
  std::set<int> unread() const;
  /// Whether it has a softmax, as attentions have.
  bool attends() const;
};

/// Throws Indivisible if the graphs cannot be analysed.
LayerFacts facts_of(const ExportedSpec& spec, const ExportedLayer& layer);

enum class PiecesKind : std::uint8_t { attention, mlp, linear, embedding, head };

/// How pieces compute a value of a layer: what they share, what comes before them and after them.
struct LayerPieces {
  /// In one of the graphs.
  struct Side {
    GraphRegion region;    ///< what is computed in parts
    int node = -1;         ///< the product whose terms the pieces make, or the look-up
    int joined = -1;       ///< the value that all pieces make
    int computed = -1;     ///< the value that they read and that the layer computes; -1: none
    std::set<int> shared;  ///< nodes that each piece repeats: they need the batch only
    std::set<int> before, after;  ///< nodes that make `computed`, and those behind `joined`
  };

  PiecesKind kind = PiecesKind::linear;
  int pieces = 1;
  std::array<Side, 2> sides;       ///< training, evaluation
  std::map<int, Division> params;  ///< by parameter of the model that the pieces share

  bool makes_terms() const { return kind != PiecesKind::linear && kind != PiecesKind::head; }
};

/// Each divides into the largest number of pieces up to the one that is wanted. Throws Indivisible
/// if the layer cannot be divided in this way.
///
/// What is computed in parts between other matrices and matrix `weight`, a value: an attention or
/// an MLP. Nothing if `wanted` says that layers of this kind stay whole.
std::optional<LayerPieces> pieces_before(const ExportedSpec& spec, const LayerFacts& facts,
                                         int weight, const TorchPieces& wanted);
/// The product with `weight`.
LayerPieces pieces_of_product(const ExportedSpec& spec, const LayerFacts& facts, int weight,
                              std::int64_t pieces);
/// The look-up of indices of the batch in a table.
LayerPieces pieces_of_embedding(const ExportedSpec& spec, const LayerFacts& facts,
                                std::int64_t pieces);
/// All of a layer that gives classes in the last dimension, and what gives the last value that it
/// computes in one piece.
LayerPieces pieces_of_head(const ExportedSpec& spec, const LayerFacts& facts, std::int64_t pieces);

}  // namespace spillway
