#include "scheduler/search/moves.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "spillway/ids.h"

namespace spillway {

Moves::Moves(const SearchSpace& space, Draws& draws) : space_(space), draws_(draws) {
  int most_pieces = 1;
  for (const WholeLayer& layer : space.layers) {
    most_pieces = std::max(most_pieces, layer.pieces);
    weights_ += layer.weights;
  }
  const auto add_shapes = [&](int tracks) {
    for (int pieces = 1; pieces <= std::min(tracks, most_pieces); ++pieces) {
      if (tracks % pieces != 0 || tracks / pieces > space.groups) continue;
      shapes_.push_back({tracks, pieces});
    }
  };
  for (int tracks = 1; tracks < space.devices; tracks *= 2) add_shapes(tracks);
  add_shapes(space.devices);
}

Draft Moves::change(Draft draft) {
  constexpr std::size_t kPercent = 100;
  const std::size_t kind = draws_.below(kPercent);
  if (kind < 70) {
    // That of another layer moves the end of a stage.
    const Grid grid = draws_.below(3) == 0 ? draws_.any_of(draft.grids) : any_grid();
    for (std::size_t l : any_group(kind))
      draft.grids[l] = grid_for(space_.layers[l], grid, space_.groups);
  } else if (kind < 80) {
    copy_a_block(draft);
  } else if (kind < 85) {
    swap_devices(draft);
  }
  // Some grids are better in another order only.
  constexpr std::size_t kOneIn = 4;
  if (kind >= 85 || draws_.below(kOneIn) == 0) draft = draws_.any_of(all_orders(draft));
  return draft;
}

std::vector<Grid> Moves::all_grids() const {
  std::vector<Grid> found;
  for (const Shape& shape : shapes_) {
    for (int begin = 0; begin + shape.tracks <= space_.devices; begin += shape.tracks) {
      found.push_back(consecutive(begin, shape.tracks, shape.pieces));
    }
  }
  return found;
}

std::vector<std::vector<std::size_t>> Moves::all_groups() const {
  std::map<std::string, std::vector<std::size_t>> kinds, blocks;
  std::vector<std::vector<std::size_t>> found;
  for (std::size_t l = 0; l < space_.layers.size(); ++l) {
    kinds[space_.layers[l].kind].push_back(l);
    if (!space_.layers[l].block.empty()) blocks[space_.layers[l].block].push_back(l);
    found.push_back({l});
  }
  for (const auto* groups : {&kinds, &blocks}) {
    for (const auto& [name, members] : *groups) {
      if (members.size() > 1) found.push_back(members);
    }
  }
  return found;
}

std::vector<Draft> Moves::all_orders(const Draft& draft) const {
  std::vector<Draft> found(6, draft);
  for (int i = 0; i < 3; ++i) found[at(i)].chunk = std::min(i, space_.virtual_nodes);
  found[3].window = 0;
  found[4].window = space_.devices;
  const bool is_forward = draft.first == FirstChoice::forward;
  found[5].first = is_forward ? FirstChoice::backward : FirstChoice::forward;
  std::ranges::move(all_stages(draft), std::back_inserter(found));
  if (!saves_memory_) return found;
  const auto add = [&](const auto& change) {
    found.push_back(draft);
    change(found.back());
  };
  const bool keeps = draft.graphs == GraphChoice::keep;
  add([&](Draft& d) { d.graphs = keeps ? GraphChoice::recompute : GraphChoice::keep; });
  add([&](Draft& d) { d.chunk = std::min(4, space_.virtual_nodes); });
  add([&](Draft& d) { d.window = 1; });
  for (const Bytes parts : {0u, 2u, 4u, 8u, 16u}) {
    add([&](Draft& d) { d.set_bytes = parts == 0 ? 0 : space_.budget / parts; });
  }
  return found;
}

std::vector<Draft> Moves::all_stages(const Draft& draft) const {
  std::vector<Draft> found;
  for (const Bytes parts : {0u, 4u, 16u, 64u}) {
    found.push_back(draft);
    found.back().stage_bytes = parts == 0 ? 0 : round_up(weights_ / parts + 1, kPage);
  }
  return found;
}

Grid Moves::any_grid() {
  const Shape shape = draws_.any_of(shapes_);
  const auto begin = draws_.below(at(space_.devices - shape.tracks + 1));
  return consecutive(static_cast<int>(begin), shape.tracks, shape.pieces);
}

std::vector<std::size_t> Moves::any_group(std::size_t kind) {
  const auto those = [&](const auto& like) {
    std::vector<std::size_t> found;
    for (std::size_t l = 0; l < space_.layers.size(); ++l) {
      if (like(l)) found.push_back(l);
    }
    return found;
  };
  const std::size_t one = draws_.below(space_.layers.size());
  const WholeLayer& layer = space_.layers[one];
  if (kind < 20) return {one};
  if (kind < 40) return those([&](std::size_t l) { return space_.layers[l].kind == layer.kind; });
  if (kind < 55 && !layer.block.empty()) {
    return those([&](std::size_t l) { return space_.layers[l].block == layer.block; });
  }
  const std::size_t other = draws_.below(space_.layers.size());
  const auto [first, last] = std::minmax(one, other);
  return those([begin = begin_of_block(first), end = end_of_block(last)](std::size_t l) {
    return begin <= l && l < end;
  });
}

std::size_t Moves::begin_of_block(std::size_t layer) const {
  const std::string& block = space_.layers[layer].block;
  while (!block.empty() && layer > 0 && space_.layers[layer - 1].block == block) --layer;
  return layer;
}

std::size_t Moves::end_of_block(std::size_t layer) const {
  const std::string& block = space_.layers[layer].block;
  const auto is_in = [&](std::size_t l) {
    return l < space_.layers.size() && space_.layers[l].block == block;
  };
  for (++layer; !block.empty() && is_in(layer);) ++layer;
  return layer;
}

/// A block gets the grids of the one before or behind it.
void Moves::copy_a_block(Draft& draft) {
  const std::size_t one = draws_.below(space_.layers.size());
  const std::size_t begin = begin_of_block(one), end = end_of_block(one);
  const std::size_t size = end - begin;
  const bool from_before = draws_.below(2) == 0;
  if (from_before ? begin < size : end + size > draft.grids.size()) return;
  for (std::size_t l = begin; l < end; ++l) {
    const std::size_t from = from_before ? l - size : l + size;
    draft.grids[l] = grid_for(space_.layers[l], draft.grids[from], space_.groups);
  }
}

void Moves::swap_devices(Draft& draft) {
  const auto devices = at(space_.devices);
  const int a = static_cast<int>(draws_.below(devices));
  const int b = static_cast<int>(draws_.below(devices));
  for (Grid& grid : draft.grids) {
    for (int& track : grid.tracks) track = track == a ? b : track == b ? a : track;
  }
}

}  // namespace spillway
