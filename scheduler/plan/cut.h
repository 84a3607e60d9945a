#pragma once

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
  std::vector<int> in;   ///< edges made before the range that it reads
  std::vector<int> out;  ///< edges made in the range that later layers read
};
Boundaries boundaries_of(const ModelSpec& model, const std::vector<Readers>& readers,
                         LayerRange layers);

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

  /// A slot for the edge that no other live boundary has in one pass through the shards.
  int slot(int edge) const { return slots_[at(edge)]; }
  Bytes slot_bytes(int slot) const { return slot_bytes_[at(slot)]; }

 private:
  void assign_slots(const ModelSpec& model);

  std::vector<Boundaries> boundaries_;
  std::vector<std::vector<int>> readers_;
  std::vector<int> slots_;
  std::vector<Bytes> slot_bytes_;
};

}  // namespace spillway
