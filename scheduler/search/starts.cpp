#include "scheduler/search/starts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "spillway/ids.h"

namespace spillway {
namespace {

/// Where each of `stages` stages begins, so that the costliest is as cheap as possible. Exact, by
/// dynamic programming over the ends of stages.
std::vector<std::size_t> stage_begins(const std::vector<WholeLayer>& layers, int stages) {
  const std::size_t n = layers.size();
  std::vector<double> until(n + 1, 0);
  for (std::size_t l = 0; l < n; ++l) until[l + 1] = until[l] + layers[l].cost_s;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> longest(at(stages) + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<std::size_t>> begin(at(stages) + 1, std::vector<std::size_t>(n + 1, 0));
  longest[0][0] = 0;
  for (std::size_t s = 1; s <= at(stages); ++s) {
    for (std::size_t end = s; end <= n; ++end) {
      for (std::size_t b = s - 1; b < end; ++b) {
        const double cost = std::max(longest[s - 1][b], until[end] - until[b]);
        if (cost >= longest[s][end]) continue;
        longest[s][end] = cost;
        begin[s][end] = b;
      }
    }
  }
  std::vector<std::size_t> begins(at(stages));
  std::size_t end = n;
  for (std::size_t s = at(stages); s > 0; --s) end = begins[s - 1] = begin[s][end];
  return begins;
}

Draft pipeline(const std::vector<WholeLayer>& layers, int stages, int tracks_per_stage) {
  Draft draft = everywhere({}, layers, 1);
  const std::vector<std::size_t> begins = stage_begins(layers, stages);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto stage = std::ranges::upper_bound(begins, l) - begins.begin() - 1;
    draft.grids[l] = consecutive(static_cast<int>(stage) * tracks_per_stage, tracks_per_stage);
  }
  draft.chunk = 1;
  return draft;
}

bool is_divided(const WholeLayer& layer) { return layer.pieces > 1; }

/// By layer: whether it has a larger part of the model's weights than of its work.
std::vector<bool> with_many_weights(const std::vector<WholeLayer>& layers) {
  double weights = 0, cost_s = 0;
  for (const WholeLayer& layer : layers) {
    weights += static_cast<double>(layer.weights);
    cost_s += layer.cost_s;
  }
  std::vector<bool> found;
  for (const WholeLayer& layer : layers) {
    found.push_back(static_cast<double>(layer.weights) * cost_s > layer.cost_s * weights);
  }
  return found;
}

}  // namespace

std::vector<std::pair<std::string, Draft>> known_drafts(const std::vector<WholeLayer>& layers,
                                                        int devices, int groups) {
  std::vector<std::pair<std::string, Draft>> found{
      {"one device, as a strategy", everywhere({}, layers, groups)}};
  const int most_lanes = std::min(devices, groups);
  if (most_lanes > 1) {
    found.emplace_back("data parallelism, as a strategy",
                       everywhere(consecutive(0, most_lanes), layers, groups));
  }
  for (int stages = 2; stages <= devices; ++stages) {
    const int lanes = devices / stages;
    if (devices % stages != 0 || lanes > groups || at(stages) > layers.size()) continue;
    found.emplace_back(lanes == 1
                           ? fmt::format("pipeline of {}", stages)
                           : fmt::format("pipeline of {}, each on {} devices", stages, lanes),
                       pipeline(layers, stages, lanes));
  }
  if (devices > 1 && std::ranges::any_of(layers, is_divided)) {
    Draft tensor = everywhere(consecutive(0, devices, devices), layers, groups);
    tensor.chunk = 1;
    Draft expert = tensor;
    const std::vector<bool> is_heavy = with_many_weights(layers);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      if (!is_divided(layers[l]) || !is_heavy[l]) expert.grids[l] = consecutive(0, most_lanes);
    }
    found.emplace_back("tensor parallelism", std::move(tensor));
    found.emplace_back("pieces or batch", std::move(expert));
  }
  return found;
}

}  // namespace spillway
