#include "scheduler/plan/cut.h"

#include <fmt/format.h>

#include <algorithm>

#include "spillway/error.h"

namespace spillway {

int batch_edge(const ModelSpec& model) {
  const auto is_batch = [](const EdgeSpec& edge) { return edge.producer < 0; };
  if (std::ranges::count_if(model.edges, is_batch) != 1) {
    throw Error(fmt::format("model {} must have exactly one batch edge", model.family));
  }
  return static_cast<int>(std::ranges::find_if(model.edges, is_batch) - model.edges.begin());
}

std::vector<Readers> readers_of(const ModelSpec& model) {
  std::vector<Readers> readers(model.edges.size());
  for (int l = 0; l < static_cast<int>(model.layers.size()); ++l) {
    for (int e : model.layers[at(l)].inputs) {
      if (readers[at(e)].first < 0) readers[at(e)].first = l;
      readers[at(e)].last = l;
    }
  }
  return readers;
}

Boundaries boundaries_of(const ModelSpec& model, const std::vector<Readers>& readers,
                         LayerRange layers) {
  Boundaries found;
  for (int l = layers.begin; l < layers.end; ++l) {
    const LayerSpec& layer = model.layers[at(l)];
    for (int e : layer.inputs) {
      const int producer = model.edges[at(e)].producer;
      if (producer >= 0 && producer < layers.begin) found.in.push_back(e);
    }
    for (int e : layer.outputs) {
      if (readers[at(e)].last >= layers.end) found.out.push_back(e);
    }
  }
  for (auto* edges : {&found.in, &found.out}) {
    std::ranges::sort(*edges);
    edges->erase(std::ranges::unique(*edges).begin(), edges->end());
  }
  return found;
}

/// The leaves among [begin, end) of a tree, of those that layers `layers` have from `first` on.
static std::vector<LeafRange> subtrees_of(LayerRange layers, int first, int leaves) {
  const LeafRange range{std::max(layers.begin - first, 0), std::min(layers.end - first, leaves)};
  return subtrees(range, leaves);
}

std::vector<LeafRange> parts_made(const EdgeSpec& edge, LayerRange layers) {
  return subtrees_of(layers, edge.producer, edge.makers);
}

std::vector<LeafRange> gradient_parts(const EdgeSpec& edge, Readers readers, LayerRange layers) {
  if (edge.reading_pieces == 1) return {LeafRange{}};
  return subtrees_of(layers, readers.first, edge.reading_pieces);
}

Cut::Cut(const ModelSpec& model, const std::vector<LayerRange>& shards)
    : model_(model),
      shards_(shards),
      reading_layers_(readers_of(model)),
      readers_(model.edges.size()),
      parts_(model.edges.size()) {
  for (int s = 0; s < static_cast<int>(shards.size()); ++s) {
    boundaries_.push_back(boundaries_of(model, reading_layers_, shards[at(s)]));
    for (int e : boundaries(s).in) readers_[at(e)].push_back(s);
    for (int e : boundaries(s).out) {
      for (LeafRange part : parts_made(model.edges[at(e)], shards[at(s)])) {
        parts_[at(e)].push_back({part, s});
      }
    }
  }
}

int Cut::next_reader(int edge, int shard) const {
  const auto next = std::ranges::upper_bound(readers(edge), shard);
  return next == readers(edge).end() ? -1 : *next;
}

/// First fit: a slot is free again after the last reader of its edge.
BoundarySlots::BoundarySlots(const ModelSpec& model, const Cut& cut) {
  std::vector<int> busy_until;  // by slot, a shard
  const auto assign = [&](EdgePart part, int shard) {
    const auto free = std::ranges::find_if(busy_until, [&](int last) { return last < shard; });
    const auto slot = static_cast<std::size_t>(free - busy_until.begin());
    if (free == busy_until.end()) {
      busy_until.push_back(0);
      bytes_.push_back(0);
    }
    busy_until[slot] = cut.readers(part.edge).back();
    bytes_[slot] = std::max(bytes_[slot], model.edges[at(part.edge)].tensor.bytes());
    slots_[part] = static_cast<int>(slot);
  };
  for (int s = 0; s < cut.num_shards(); ++s) {
    for (int e : cut.boundaries(s).out) {
      for (const Cut::Part& part : cut.parts(e)) {
        if (part.shard == s) assign({e, part.pieces}, s);
      }
    }
  }
}

}  // namespace spillway
