#pragma once

#include <map>
#include <vector>

#include "scheduler/plan/program.h"
#include "spillway/ids.h"

namespace spillway {

/// The batch edge: the only edge without a producer. Throws Error unless there is exactly one.
int batch_edge(const ModelSpec& model);

/// The first and last layers that read an edge.
struct Readers {
  int first = -1, last = -1;
};
/// By edge.
std::vector<Readers> readers_of(const ModelSpec& model);

/// The activations that a range of layers exchanges with the rest of its model, ascending.
struct Boundaries {
  std::vector<int> in;   ///< edges made before the range, at least partly, that it reads
  std::vector<int> out;  ///< edges made in the range, at least partly, that later layers read
};
Boundaries boundaries_of(const ModelSpec& model, const std::vector<Readers>& readers,
                         LayerRange layers);

/// The subtrees of an edge's value that a range of layers makes.
std::vector<LeafRange> parts_made(const EdgeSpec& edge, LayerRange layers);
/// The subtrees of an edge's gradient that a range of layers which reads it makes.
std::vector<LeafRange> gradient_parts(const EdgeSpec& edge, Readers readers, LayerRange layers);

/// A model cut into shards. Every tensor that crosses a cut is a boundary; it may skip the shards
/// between its producer and its readers.
class Cut {
 public:
  /// `shards` cover the layers in order; `model` outlives the cut.
  Cut(const ModelSpec& model, const std::vector<LayerRange>& shards);

  /// Of one shard.
  const Boundaries& boundaries(int shard) const { return boundaries_[at(shard)]; }
  /// The shards that read a boundary, ascending, without its producer.
  const std::vector<int>& readers(int edge) const { return readers_[at(edge)]; }
  /// The next shard after `shard` that reads the edge; -1: none.
  int next_reader(int edge, int shard) const;

  /// A part of a boundary, and the shard that makes it.
  struct Part {
    LeafRange pieces;
    int shard = 0;
  };
  /// The parts of a boundary that its readers get from other shards, ascending.
  const std::vector<Part>& parts(int edge) const { return parts_[at(edge)]; }
  /// The parts of its gradient that a shard which reads it makes.
  std::vector<LeafRange> gradient_parts(int edge, int shard) const {
    return spillway::gradient_parts(model_.edges[at(edge)], reading_layers_[at(edge)],
                                    shards_[at(shard)]);
  }

  int num_shards() const { return static_cast<int>(shards_.size()); }

 private:
  const ModelSpec& model_;
  const std::vector<LayerRange> shards_;
  const std::vector<Readers> reading_layers_;
  std::vector<Boundaries> boundaries_;
  std::vector<std::vector<int>> readers_;
  std::vector<std::vector<Part>> parts_;
};

/// A slot for each part of a boundary, such that those that are live at the same time in one pass
/// through the shards have different ones.
class BoundarySlots {
 public:
  BoundarySlots(const ModelSpec& model, const Cut& cut);
  int of(EdgePart part) const { return slots_.at(part); }
  /// The largest part that it holds.
  Bytes bytes(int slot) const { return bytes_[at(slot)]; }

 private:
  std::map<EdgePart, int> slots_;
  std::vector<Bytes> bytes_;
};

}  // namespace spillway
