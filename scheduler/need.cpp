#include <algorithm>
#include <set>

#include "core/ids.h"
#include "scheduler/layout.h"
#include "scheduler/lower.h"

namespace spillway {
namespace {

Bytes output_bytes(const ModelSpec& model, int layer) {
  Bytes bytes = 0;
  for (int e : model.layers[at(layer)].outputs) {
    bytes += round_up(model.edges[at(e)].tensor.bytes(), kAlignment);
  }
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
  Bytes peak = 0;
  for (int l = layers.begin; l < layers.end; ++l) {
    const Bytes input = l > layers.begin ? output_bytes(model, l - 1) : 0;
    peak = std::max(peak, input + profile.layers[at(l)].forward_peak);
  }
  return peak;
}

Bytes backward_workspace(const ModelSpec&, const Profile& profile, LayerRange layers) {
  Bytes peak = 0, retained = 0;
  for (int l = layers.begin; l < layers.end; ++l) {
    const LayerProfile& layer = profile.layers[at(l)];
    peak = std::max({peak, retained + layer.graph_peak, retained + layer.backward_peak});
    retained += layer.graph_retained;
  }
  return peak;
}

UnitNeed unit_need(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                   LayerRange layers) {
  const bool first = layers.begin == 0;
  const bool last = layers.end == static_cast<int>(model.layers.size());
  const auto bytes_at = [&](int cut) {
    return round_up(boundary_edge(model, cut).tensor.bytes(), kAlignment);
  };
  const Bytes batch =
      reads_batch(model, layers) ? round_up(batch_edge(model).tensor.bytes(), kAlignment) : 0;
  const Bytes in = first ? 0 : bytes_at(layers.begin);
  const Bytes out = last ? 0 : bytes_at(layers.end);
  const Bytes weights = weights_bytes(model, layers);
  const UnitNeed forward{weights, 0, forward_workspace(model, profile, layers), in + out + batch};
  const UnitNeed backward{weights, sum_bytes(model, layers) * static_cast<Bytes>(most_slots(shape)),
                          backward_workspace(model, profile, layers), 2 * in + out + batch};
  return forward.total() > backward.total() ? forward : backward;
}

}  // namespace spillway
