#include <algorithm>
#include <map>
#include <set>

#include "core/ids.h"
#include "scheduler/cut.h"
#include "scheduler/layout.h"
#include "scheduler/lower.h"

namespace spillway {
namespace {

Bytes edge_bytes(const ModelSpec& model, int edge) {
  return round_up(model.edges[at(edge)].tensor.bytes(), kAlignment);
}

Bytes edge_bytes(const ModelSpec& model, const std::vector<int>& edges) {
  Bytes bytes = 0;
  for (int e : edges) bytes += edge_bytes(model, e);
  return bytes;
}

Bytes sum_bytes(const ModelSpec& model, LayerRange layers) {
  Bytes bytes = 0;
  for (int l = layers.begin; l < layers.end; ++l) {
    for (int p : model.layers[at(l)].params) {
      if (!model.params[at(p)].trainable) continue;
      bytes += round_up(model.params[at(p)].tensor.bytes(), kAlignment);
    }
  }
  return bytes;
}

/// By layer of the range: bytes of the gradients that wait or are added up while its backward runs,
/// besides those in its own profile.
std::vector<Bytes> standing_gradients(const ModelSpec& model, LayerRange layers) {
  const std::vector<Readers> readers = readers_of(model);
  std::map<int, int> first_reader;  // in the range
  for (int l = layers.begin; l < layers.end; ++l) {
    for (int e : model.layers[at(l)].inputs) first_reader.try_emplace(e, l);
  }
  std::vector<Bytes> standing(at(layers.end - layers.begin));
  std::set<int> open;  // edges with gradients of some of their readers
  for (int l = layers.end - 1; l >= layers.begin; --l) {
    for (int e : model.layers[at(l)].outputs) open.erase(e);
    Bytes& bytes = standing[at(l - layers.begin)];
    for (int e : open) bytes += edge_bytes(model, e);
    for (int e : model.layers[at(l)].inputs) {
      if (!has_gradient(model.edges[at(e)])) continue;
      const bool is_added = open.contains(e) || readers[at(e)].last >= layers.end;
      if (is_added) bytes += edge_bytes(model, e);
      const bool leaves = model.edges[at(e)].producer < layers.begin && first_reader[e] == l;
      if (leaves) {
        open.erase(e);
      } else {
        open.insert(e);
      }
    }
  }
  return standing;
}

int most_slots(const JobShape& shape) {
  int slots = 0;
  for (GroupRange lane : lane_ranges(shape)) {
    slots = std::max(slots, plan_fold(lane, shape.groups, 1).num_slots);
  }
  return slots;
}

}  // namespace

bool reads_batch(const ModelSpec& model, LayerRange layers) {
  for (int l = layers.begin; l < layers.end; ++l) {
    for (int e : model.layers[at(l)].inputs) {
      if (model.edges[at(e)].producer < 0) return true;
    }
  }
  return false;
}

Bytes weights_bytes(const ModelSpec& model, LayerRange layers) {
  std::set<int> params;
  for (int l = layers.begin; l < layers.end; ++l) {
    params.insert(model.layers[at(l)].params.begin(), model.layers[at(l)].params.end());
  }
  Bytes bytes = 0;
  for (int p : params) bytes += round_up(model.params[at(p)].tensor.bytes(), kAlignment);
  return bytes;
}

Bytes forward_workspace(const ModelSpec& model, const Profile& profile, LayerRange layers) {
  std::map<int, int> last_reader;  // in the range, by edge
  for (int l = layers.begin; l < layers.end; ++l) {
    for (int e : model.layers[at(l)].inputs) last_reader[e] = l;
  }
  Bytes peak = 0, live = 0;  // live: outputs of earlier layers that are still to be read
  for (int l = layers.begin; l < layers.end; ++l) {
    peak = std::max(peak, live + profile.layers[at(l)].forward_peak);
    for (int e : model.layers[at(l)].inputs) {
      const bool made_here = model.edges[at(e)].producer >= layers.begin;
      if (made_here && last_reader[e] == l) live -= edge_bytes(model, e);
    }
    for (int e : model.layers[at(l)].outputs) {
      if (last_reader.contains(e)) live += edge_bytes(model, e);
    }
  }
  return peak;
}

Bytes backward_workspace(const ModelSpec& model, const Profile& profile, LayerRange layers) {
  const std::vector<Bytes> gradients = standing_gradients(model, layers);
  Bytes peak = 0, retained = 0;
  for (int l = layers.begin; l < layers.end; ++l) {
    const LayerProfile& layer = profile.layers[at(l)];
    const Bytes backward = gradients[at(l - layers.begin)] + layer.backward_peak;
    peak = std::max({peak, retained + layer.graph_peak, retained + backward});
    retained += layer.graph_retained;
  }
  return peak;
}

UnitNeed unit_need(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                   LayerRange layers) {
  const std::vector<Readers> readers = readers_of(model);
  const Boundaries boundaries = boundaries_of(model, readers, layers);
  const Bytes batch = reads_batch(model, layers) ? edge_bytes(model, batch_edge(model)) : 0;
  const Bytes in = edge_bytes(model, boundaries.in), out = edge_bytes(model, boundaries.out);
  Bytes gradients = 0;  // of what crosses, and those that come from shards behind
  for (int e : boundaries.out) {
    if (has_gradient(model.edges[at(e)])) gradients += edge_bytes(model, e);
  }
  for (int e : boundaries.in) {
    if (!has_gradient(model.edges[at(e)])) continue;
    gradients += edge_bytes(model, e) * (readers[at(e)].last >= layers.end ? 2 : 1);
  }
  const Bytes weights = weights_bytes(model, layers);
  const UnitNeed forward{weights, 0, forward_workspace(model, profile, layers), in + out + batch};
  const UnitNeed backward{weights, sum_bytes(model, layers) * static_cast<Bytes>(most_slots(shape)),
                          backward_workspace(model, profile, layers), in + gradients + batch};
  return forward.total() > backward.total() ? forward : backward;
}

}  // namespace spillway
