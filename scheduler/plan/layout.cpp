#include "scheduler/plan/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "core/base/xxh3.h"
#include "core/device/kernels.h"
#include "spillway/error.h"
#include "spillway/ids.h"

namespace spillway {

SumPlaces sum_places(const ModelSpec& model, const LayerSpec& layer) {
  SumPlaces places;
  const auto is_rounded = [&](int p) {
    const ParamSpec& param = model.params[at(p)];
    return param.has_sum() && param.finished_sum() != param.master();
  };
  if (std::ranges::any_of(layer.params, is_rounded)) places.bytes = kAlignment;
  for (int p : layer.params) {
    const ParamSpec& param = model.params[at(p)];
    places.offsets.push_back(param.has_sum() ? places.bytes : kNoHome);
    places.packed_offsets.push_back(param.has_sum() ? places.packed_bytes : kNoHome);
    if (!param.has_sum()) continue;
    places.bytes += round_up(param.master().bytes(), kAlignment);
    places.packed_bytes += round_up(param.finished_sum().bytes(), kAlignment);
  }
  return places;
}

int host_grains(Bytes bytes) { return static_cast<int>(std::max<Bytes>(1, bytes / kHostGrain)); }

HostOpSpec reduce_of(const ModelSpec& model, const Profile& profile, int layer,
                     const Layout::LayerPlace& place, std::size_t merges) {
  const std::vector<int>& params = model.layers[at(layer)].params;
  Bytes normed = place.sum.packed_bytes, largest = 0;  // that the host reads
  for (std::size_t i : place.device_norms) {
    normed -= round_up(model.params[at(params[i])].finished_sum().bytes(), kAlignment);
  }
  for (int p : params) {
    const ParamSpec& param = model.params[at(p)];
    if (param.has_sum()) largest = std::max(largest, param.finished_sum().bytes());
  }
  const double norm_s = static_cast<double>(normed) / profile.reduce_bytes_per_s;
  const double merge_s = static_cast<double>(merges) * profile.layers[at(layer)].merge_s;
  return {.kind = HostOpKind::reduce,
          .index = layer,
          .cost_s = norm_s + merge_s,
          .grains = normed + merges > 0 ? host_grains(largest) : 1};
}

LayoutBuilder::LayoutBuilder(const ModelSpec& model, const JobShape& shape,
                             const Strategy& strategy, const Cut& cut)
    : model_(model),
      uses_(uses_of(model)),
      shape_(shape),
      strategy_(strategy),
      cut_(cut),
      blocks_(weights_blocks(model)),
      parts_(model, blocks_, shape_),
      keeps_order_(strategy.is_data_parallel() && strategy.chunk == 0) {
  const int per_group = shape_.virtual_nodes / shape_.groups;
  for (const Stage& stage : strategy_.stages) {
    std::vector<int>& partials = partials_.emplace_back();
    for (const Cell& cell : stage.cells) {
      const auto [fold, is_new] = folds_.try_emplace({cell.groups.begin, cell.groups.end});
      if (is_new) fold->second = plan_fold(cell.groups, shape_.groups, per_group);
      for (const auto& [first, slot] : fold->second.roots) partials.push_back(first);
    }
    for (int host = 0; host < static_cast<int>(shape_.host_groups.size()); ++host) {
      if (host == shape_.host) continue;
      for (int first : shape_.subtrees_of(host)) partials.push_back(first);
    }
    std::ranges::sort(partials);
  }
  if (keeps_order_ && shape_.eval_virtual_nodes > 0) eval_slots_.emplace(model, cut);
  place_weights();
  place_sums();
  place_batches();
  if (shape_.has_peers()) place_numbers();
  layout_.host = shape_.host;
  if (shape_.is_sharded()) place_norms();
}

int LayoutBuilder::add_buffer(BufferKind kind, Bytes bytes, Bytes home) {
  bytes = round_up(bytes, kAlignment);
  layout_.buffers.push_back({.kind = kind, .bytes = bytes, .home_bytes = bytes, .home = home});
  return static_cast<int>(layout_.buffers.size()) - 1;
}

int LayoutBuilder::add_edge(BufferKind kind, EdgePart part, Bytes home) {
  const int buffer = add_buffer(kind, model_.edges[at(part.edge)].tensor.bytes(), home);
  layout_.buffers.back().part = part;
  return buffer;
}

Bytes LayoutBuilder::reserve(Bytes bytes, Bytes alignment) {
  const Bytes home = round_up(layout_.home_bytes, alignment);
  layout_.home_bytes = home + round_up(bytes, kAlignment);
  return home;
}

void LayoutBuilder::divide_among_hosts() {
  for (int p = 0; p < static_cast<int>(model_.params.size()); ++p) {
    const ParamSpec& param = model_.params[at(p)];
    Layout::ParamPlace& place = layout_.params[at(p)];
    place.held = all_elements(param);
    const bool is_divided = shape_.is_sharded() && param.has_sum();
    place.own = is_divided ? parts_.of(p, shape_.host) : place.held;
    place.kept = is_divided ? parts_.kept(p, shape_.host) : place.held;
  }
}

/// `copied`: gets the block if it needs a copy in another type, which has no home yet.
void LayoutBuilder::place_block(const std::vector<int>& params, std::vector<int>& copied) {
  const bool has_copy = std::ranges::any_of(
      params, [&](int p) { return model_.params[at(p)].tensor != model_.params[at(p)].master(); });
  Bytes bytes = 0, master_bytes = 0;
  for (int p : params) {
    const ParamSpec& param = model_.params[at(p)];
    Layout::ParamPlace& place = layout_.params[at(p)];
    place.offset_in_block = bytes;
    place.home = master_bytes;
    bytes += round_up(param.tensor.bytes(), kAlignment);
    place.divides_master = has_copy && shape_.is_sharded() && param.has_sum();
    if (place.divides_master) place.held = place.kept;
    const Bytes held = static_cast<Bytes>(place.held.size()) * size_of(param.master().dtype);
    master_bytes += round_up(held, kAlignment);
  }
  if (bytes == 0) return;
  const bool is_shared = model_.params[at(params.front())].can_be_shared();
  const Bytes copy_begin = has_copy ? round_up(master_bytes, kPage) : 0;
  const Bytes home = is_shared ? share(params, copy_begin + bytes) : reserve(master_bytes, kPage);
  const int buffer = add_buffer(BufferKind::weights, bytes, home);
  layout_.weights.push_back(buffer);
  for (int p : params) {
    layout_.params[at(p)].weights_buffer = buffer;
    layout_.params[at(p)].home += home;
  }
  if (is_shared) {
    layout_.buffers.back().home += copy_begin;
    layout_.buffers.back().shared = static_cast<int>(layout_.shared.size()) - 1;
  } else if (has_copy) {
    copied.push_back(buffer);
  }
}

void LayoutBuilder::place_weights() {
  layout_.params.resize(model_.params.size());
  divide_among_hosts();
  std::vector<int> copied;  // buffers
  for (const std::vector<int>& block : blocks_) place_block(block, copied);
  layout_.weights_plane = round_up(layout_.home_bytes, kPage);
  place_moments();
  layout_.moments = shape_.moments;
  layout_.moments_home = layout_.weights_plane;
  layout_.home_bytes =
      layout_.moments_home + static_cast<Bytes>(shape_.moments) * layout_.moments_plane;
  const Bytes copies_home = layout_.home_bytes;
  for (int b : copied) {
    BufferSpec& block = layout_.buffers[at(b)];
    block.home = reserve(block.bytes, kPage);
  }
  layout_.home_bytes = round_up(layout_.home_bytes, kPage);
  layout_.copies_plane = layout_.home_bytes - copies_home;
}

void LayoutBuilder::place_moments() {
  for (const std::vector<int>& block : blocks_) {
    for (int p : block) {
      const ParamSpec& param = model_.params[at(p)];
      if (!param.trainable) continue;
      Layout::ParamPlace& place = layout_.params[at(p)];
      place.moment_offset = layout_.moments_plane;
      const Bytes bytes = static_cast<Bytes>(place.kept.size()) * size_of(param.master().dtype);
      layout_.moments_plane += round_up(bytes, kAlignment);
    }
  }
  layout_.moments_plane = round_up(layout_.moments_plane, kPage);
}

/// A block for these parameters, behind those before it.
Bytes LayoutBuilder::share(const std::vector<int>& params, Bytes bytes) {
  Xxh3 content;
  for (int p : params) {
    const ParamSpec& param = model_.params[at(p)];
    const std::string line =
        fmt::format("{} {} {} {}\n", param.name, param.content,
                    static_cast<int>(param.tensor.dtype), param.tensor.bytes());
    content.add(line.data(), line.size());
  }
  const Bytes home = kSharedHomes + layout_.shared_bytes;
  bytes = round_up(bytes, kPage);
  layout_.shared.push_back({content.hex(), home, bytes});
  layout_.shared_bytes += bytes;
  return home;
}

void LayoutBuilder::place_sums() {
  std::vector<Bytes> in_plane;  // by layer
  Bytes plane = 0;
  for (const Stage& stage : strategy_.stages) {
    // True for a single cell on devices whose access to host memory is slow (GPUs).
    const bool has_whole_sums =
        shape_.split.dedicated_activations() && stage.cells.size() == 1 && !shape_.has_peers();
    for (int l = stage.layers.begin; l < stage.layers.end; ++l) {
      const LayerSpec& layer = model_.layers[at(l)];
      Layout::LayerPlace place;
      for (int p : layer.params) {
        place.weights_buffers.push_back(layout_.params[at(p)].weights_buffer);
        place.weight_offsets.push_back(layout_.params[at(p)].offset_in_block);
      }
      place.sum = sum_places(model_, layer);
      for (std::size_t i = 0; has_whole_sums && i < layer.params.size(); ++i) {
        const int p = layer.params[i];
        const bool is_whole = model_.params[at(p)].trainable && uses_[at(p)] == 1;
        if (is_whole) place.device_norms.push_back(i);
      }
      in_plane.push_back(round_up(plane, kPage));
      plane = in_plane.back() + round_up(place.sum.packed_bytes, kAlignment);
      layout_.layers.push_back(std::move(place));
    }
  }
  layout_.sum_plane = round_up(plane, kPage);
  const Bytes begin = layout_.home_bytes;
  place_partials(in_plane);
  layout_.sums_bytes = layout_.home_bytes - begin;
  place_whole_sums();
  add_sum_buffers();
}

int LayoutBuilder::position_of_partial(int stage, int first_group) const {
  const std::vector<int>& firsts = partials(stage);
  return static_cast<int>(std::ranges::lower_bound(firsts, first_group) - firsts.begin());
}

/// `in_plane`: offsets of layers. The first partial, which becomes the total, has the same home in
/// all plans, so it comes first.
void LayoutBuilder::place_partials(const std::vector<Bytes>& in_plane) {
  const GroupRange own = shape_.own_groups();
  const auto is_whole = [&](int stage, std::size_t k) {
    const int first_group = partials(stage)[k];
    const bool is_own = first_group >= own.begin && first_group < own.end;
    return is_own || (k == 0 && !shape_.is_sharded());
  };
  const auto for_each = [&](const auto& what) {
    for (int s = 0; s < static_cast<int>(strategy_.stages.size()); ++s) {
      const LayerRange layers = strategy_.stages[at(s)].layers;
      for (int l = layers.begin; l < layers.end; ++l) what(s, l, layout_.layers[at(l)]);
    }
  };
  // The range of the packed sums of a layer that this host has of partial `k`.
  const auto part_of = [&](int layer, std::size_t k) {
    const LayerSpec& spec = model_.layers[at(layer)];
    const SumPlaces& sum = layout_.layers[at(layer)].sum;
    const auto parts =
        k == 0 ? parts_.kept_sums(spec, sum, shape_.host) : parts_.of_sums(spec, sum, shape_.host);
    if (parts.empty()) return HomeRange();
    return HomeRange{parts.front().home,
                     parts.back().home + parts.back().bytes - parts.front().home};
  };
  const auto place_part = [&](int layer, std::size_t k) {
    const HomeRange part = part_of(layer, k);
    layout_.layers[at(layer)].partials[k] = reserve(part.bytes, kAlignment) - part.home;
  };
  for_each([&](int s, int l, Layout::LayerPlace& layer) {
    layer.partials.resize(partials(s).size());
    if (!is_whole(s, 0)) place_part(l, 0);
  });
  const Bytes planes = round_up(layout_.home_bytes, kPage);
  for_each([&](int s, int l, Layout::LayerPlace& layer) {
    std::size_t plane = 0;
    for (std::size_t k = 0; k < layer.partials.size(); ++k) {
      if (is_whole(s, k))
        layer.partials[k] = planes + plane++ * layout_.sum_plane + in_plane[at(l)];
    }
    layout_.sum_planes = std::max(layout_.sum_planes, plane);
    layer.total = {layer.partials.front(), layer.sum.packed_bytes};
    if (!shape_.is_sharded()) return;
    const HomeRange part = part_of(l, 0);
    layer.total = {layer.partials.front() + part.home, part.bytes};
  });
  layout_.home_bytes = planes + layout_.sum_planes * layout_.sum_plane;
  for_each([&](int s, int l, const Layout::LayerPlace& layer) {
    for (std::size_t k = 1; k < layer.partials.size(); ++k) {
      if (!is_whole(s, k)) place_part(l, k);
    }
  });
  layout_.home_bytes = round_up(layout_.home_bytes, kPage);
  if (shape_.has_peers()) return;  // HostExchange has the merges
  for_each([&](int s, int, Layout::LayerPlace& layer) {
    for (const auto& [into, from] : remaining_merges(partials(s), shape_.groups)) {
      layer.merges.push_back({position_of_partial(s, into), position_of_partial(s, from)});
    }
  });
}

/// The sum of a tied parameter is placed with its last layer.
void LayoutBuilder::place_whole_sums() {
  for (int l = 0; l < static_cast<int>(model_.layers.size()); ++l) {
    const std::vector<int>& params = model_.layers[at(l)].params;
    for (std::size_t i = params.size(); i-- > 0;) {
      if (!model_.params[at(params[i])].has_sum()) continue;
      layout_.params[at(params[i])].sum = layout_.sum_of_use(l, i);
    }
  }
}

void LayoutBuilder::add_sum_buffers() {
  std::size_t cells = 0;
  for (const Stage& stage : strategy_.stages) cells = std::max(cells, stage.cells.size());
  for (int c = 0; c < static_cast<int>(cells); ++c) {
    layout_.sum_buffers.emplace_back();
    bool is_found = true;
    for (int slot = 0; is_found; ++slot) {
      is_found = false;
      for (int s = 0; s < static_cast<int>(strategy_.stages.size()); ++s) {
        const bool has_cell = at(c) < strategy_.stages[at(s)].cells.size();
        if (!has_cell || slot >= fold(s, c).num_slots) continue;
        is_found = true;
        add_sum_buffers(s, c, slot);
      }
    }
  }
}

/// The sums of the layers of a stage in one slot of a cell.
void LayoutBuilder::add_sum_buffers(int stage, int cell, int slot) {
  const Stage& spec = strategy_.stages[at(stage)];
  auto& slots = layout_.sum_buffers[at(cell)];
  if (at(slot) == slots.size()) slots.emplace_back(layout_.layers.size(), -1);
  const FoldPlan& plan = fold(stage, cell);
  const auto root = std::ranges::find(plan.roots, slot, &std::pair<int, int>::second);
  const GroupRange groups = spec.cells[at(cell)].groups;
  const bool is_kept = strategy_.divides(groups, shape_.virtual_nodes / shape_.groups);
  const bool is_root = root != plan.roots.end();
  const int number = is_root ? position_of_partial(stage, root->first) : 0;
  for (int l = spec.layers.begin; l < spec.layers.end; ++l) {
    if (layout_.layers[at(l)].sum.bytes == 0) continue;
    const Bytes home = is_root ? layout_.partial(l, at(number)) : kNoHome;
    slots[at(slot)][at(l)] = add_sum(l, home, is_kept);
  }
}

/// `is_kept`: between units.
int LayoutBuilder::add_sum(int layer, Bytes home, bool is_kept) {
  const SumPlaces& places = layout_.layers[at(layer)].sum;
  const int buffer = add_buffer(BufferKind::sum, places.bytes, home);
  BufferSpec& spec = layout_.buffers.back();
  spec.home_bytes = places.packed_bytes;
  const bool fits_home = home != kNoHome && places.packed_bytes >= places.bytes;
  if (is_kept) spec.kept_home = fits_home ? home : reserve(places.bytes, kAlignment);
  return buffer;
}

void LayoutBuilder::place_batches() {
  const int edge = batch_edge(model_);
  const Bytes bytes = model_.edges[at(edge)].tensor.bytes();
  const auto place = [&](int first, int end, std::vector<int>& buffers) {
    for (int vn = first; vn < end; ++vn) {
      buffers.push_back(add_edge(BufferKind::batch, {edge, {}}, reserve(bytes, kAlignment)));
    }
  };
  const GroupRange own = shape_.own_groups();
  layout_.virtual_nodes = shape_.virtual_nodes;
  layout_.eval_virtual_nodes = shape_.eval_virtual_nodes;
  layout_.first_vn = shape_.first_vn(own.begin);
  layout_.first_eval_vn = shape_.first_eval_vn(own.begin);
  place(layout_.first_vn, shape_.first_vn(own.end), layout_.batch);
  place(layout_.first_eval_vn, shape_.first_eval_vn(own.end), layout_.eval_batch);
}

void LayoutBuilder::place_numbers() {
  layout_.eval_numbers = 2 + model_.num_metric_sums();
  layout_.numbers_home = layout_.home_bytes;
  const Bytes end = layout_.numbers_of_eval(shape_.eval_virtual_nodes);
  layout_.numbers_home = reserve(end - layout_.numbers_home, kAlignment);
}

/// By host, so that what one tells the others is one range.
void LayoutBuilder::place_norms() {
  constexpr Bytes kNumber = sizeof(double);
  const auto bytes_of = [](const HostPart& part) {
    return kNumber * kernels::num_norm_chunks(static_cast<std::size_t>(part.elements.size()));
  };
  layout_.norms.resize(shape_.host_groups.size(), {.bytes = kNumber});  // the word
  for (int p = 0; p < static_cast<int>(model_.params.size()); ++p) {
    layout_.params[at(p)].parts = parts_.of(p);
    if (!model_.params[at(p)].trainable) continue;
    for (const HostPart& part : parts_.of(p)) layout_.norms[at(part.host)].bytes += bytes_of(part);
  }
  std::vector<Bytes> next;
  for (HomeRange& of_host : layout_.norms) {
    of_host.home = reserve(of_host.bytes, kAlignment);
    next.push_back(of_host.home + kNumber);
  }
  for (std::size_t p = 0; p < model_.params.size(); ++p) {
    if (!model_.params[p].trainable) continue;
    for (HostPart& part : layout_.params[p].parts) {
      part.norms = next[at(part.host)];
      next[at(part.host)] += bytes_of(part);
    }
  }
}

std::vector<int> LayoutBuilder::sums(int stage, int cell) const {
  const LayerRange layers = strategy_.stages[at(stage)].layers;
  const auto& slots = layout_.sum_buffers[at(cell)];
  std::vector<int> found;
  for (int slot = 0; slot < fold(stage, cell).num_slots; ++slot) {
    for (int l = layers.begin; l < layers.end; ++l) {
      const int buffer = slots[at(slot)][at(l)];
      if (buffer >= 0) found.push_back(buffer);
    }
  }
  return found;
}

std::vector<int> LayoutBuilder::drains(int stage, int cell) const {
  auto found = sums(stage, cell);
  std::erase_if(found, [&](int b) { return layout_.buffers[at(b)].home == kNoHome; });
  return found;
}

int LayoutBuilder::boundary(EdgePart part, int vn) {
  const auto [place, is_new] = boundaries_.try_emplace({part, vn}, 0);
  if (is_new) {
    const Bytes home = reserve(model_.edges[at(part.edge)].tensor.bytes(), kAlignment);
    place->second = add_edge(BufferKind::boundary, part, home);
  }
  return place->second;
}

Bytes LayoutBuilder::gradient_home(EdgePart part, int shard, int vn) {
  const int edge = part.edge;
  // The gradients of pieces do not wait for each other.
  const bool is_last_read = keeps_order_ || model_.edges[at(edge)].reading_pieces == 1;
  const bool is_first = shard == cut_.readers(edge).front() &&
                        part.pieces == cut_.gradient_parts(edge, shard).front();
  if (!is_first || !is_last_read) return reserve(model_.edges[at(edge)].tensor.bytes(), kAlignment);
  return layout_.buffers[at(boundary({edge, cut_.parts(edge).front().pieces}, vn))].home;
}

int LayoutBuilder::gradient(EdgePart part, int shard, int vn) {
  const auto [place, is_new] = gradients_.try_emplace({part, shard, vn}, 0);
  if (is_new) {
    place->second = add_edge(BufferKind::gradient, part, gradient_home(part, shard, vn));
  }
  return place->second;
}

int LayoutBuilder::graph(int stage, int vn, Bytes bytes) {
  const auto [place, is_new] = graphs_.try_emplace({stage, vn}, 0);
  if (is_new) {
    place->second = add_buffer(BufferKind::graph, bytes, kNoHome);
    layout_.buffers.back().home_bytes = 0;
  }
  return place->second;
}

int LayoutBuilder::eval_boundary(EdgePart part, int vn) {
  const auto [place, is_new] = eval_boundaries_.try_emplace({part, vn}, 0);
  if (is_new) place->second = add_edge(BufferKind::boundary, part, eval_home(part, vn));
  return place->second;
}

Bytes LayoutBuilder::eval_home(EdgePart part, int vn) {
  if (!keeps_order_) {  // all may be live at the same time
    return reserve(model_.edges[at(part.edge)].tensor.bytes(), kAlignment);
  }
  const int slot = eval_slots_->of(part);
  const auto [home, first_use] = eval_homes_.try_emplace({slot, vn}, 0);
  if (first_use) home->second = reserve(eval_slots_->bytes(slot), kAlignment);
  return home->second;
}

Layout LayoutBuilder::finish() && {
  layout_.home_bytes = round_up(layout_.home_bytes, kPage);
  return std::move(layout_);
}

}  // namespace spillway
