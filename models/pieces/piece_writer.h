#pragma once

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/graphs/exported_spec.h"
#include "models/graphs/graph_writer.h"
#include "models/pieces/layer_pieces.h"

namespace spillway {

/// Writes the layers that stand for a divided one: what comes before the pieces, the pieces, and
/// what comes after them. Their graphs are added to the model, and the layers are not.
class PieceWriter {
 public:
  /// Gives the number of a parameter's part.
  using PartOf = std::function<int(int param, int piece)>;

  /// All must outlive the writer.
  PieceWriter(ExportedSpec& spec, const LayerFacts& facts, const LayerPieces& pieces)
      : spec_(spec), facts_(facts), pieces_(pieces) {}

  /// `name`: of the layer to make.
  ExportedLayer before(const std::string& name);
  /// `computed`: the layer `before`, if there is one. `targets`: of a head.
  ExportedLayer piece(const std::string& name, int piece, ExportedSource computed,
                      ExportedSource targets, const PartOf& part_of);
  /// `joined`: the pieces or, of terms, the first piece.
  ExportedLayer after(const std::string& name, ExportedSource computed,
                      const std::vector<ExportedSource>& joined);

 private:
  using Side = LayerPieces::Side;
  /// An input that the divided layer does not have, or a value that it computed itself.
  struct Added {
    ExportedSource source;
    std::array<int, 2> stands_for{-1, -1};  ///< value of the graph in training, in evaluation
  };
  /// What a layer consists of: in each graph.
  struct Content {
    std::vector<Added> added;
    std::array<std::set<int>, 2> nodes;  ///< from which it gets values
    std::set<int> given;                 ///< values that it gets beside those
    /// Writes the calls and returns the value that they give. `added`: numbers of these values.
    std::function<int(std::size_t side, GraphWriter&, const std::vector<int>& added)> write;
  };

  ExportedLayer layer_of(const std::string& name, const Content& content,
                         const std::function<int(int param)>& param_of);
  int write_graph(const Content& content, std::size_t side, const std::set<int>& given);
  int add_graph(ExportedGraph graph);
  bool is_differentiable(const ExportedLayer& layer) const;

  GraphWriter::Json& copy(std::size_t side, int node, GraphWriter& writer) const;
  void write_parts(std::size_t side, int piece, GraphWriter& writer) const;
  /// The part of a fixed value.
  int write_slice(Shape shape, const Division& division, int piece, int value,
                  GraphWriter& writer) const;
  int write_term(std::size_t side, GraphWriter& writer) const;
  int write_look_up(std::size_t side, int piece, GraphWriter& writer) const;
  int write_classes(std::size_t side, int piece, int targets, GraphWriter& writer) const;
  int write_joined(std::size_t side, const std::vector<int>& pieces, GraphWriter& writer) const;

  const GraphFacts& side_facts(std::size_t side) const { return *facts_.sides[side]; }
  const Side& side(std::size_t number) const { return pieces_.sides[number]; }
  Added computed_by(ExportedSource source) const {
    return {source, {side(0).computed, side(1).computed}};
  }
  bool reads_computed() const { return side(0).computed >= 0; }

  ExportedSpec& spec_;
  const LayerFacts& facts_;
  const LayerPieces& pieces_;
};

}  // namespace spillway
