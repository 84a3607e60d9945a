#include "trainer/planning/largest_layer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <vector>

#include "spillway/ids.h"

namespace spillway {
namespace {

UnitNeed need_alone(const NeedTable& needs, int layer) {
  return range_need(needs, {layer, layer + 1}).largest();
}

}  // namespace

std::string largest_weight(const ModelSpec& model, const LayerSpec& layer) {
  if (layer.params.empty()) return "";
  const auto bytes = [&](int param) { return model.params[at(param)].tensor.bytes(); };
  const ParamSpec& largest = model.params[at(std::ranges::max(layer.params, {}, bytes))];
  return fmt::format("{}, {}", largest.name, fmt::join(largest.tensor.shape(), " x "));
}

std::string describe_largest_layer(const NeedTable& needs) {
  const auto num_layers = static_cast<int>(needs.model.layers.size());
  const auto total = [&](int layer) { return need_alone(needs, layer).total(needs.split); };
  const int largest = std::ranges::max(std::views::iota(0, num_layers), {}, total);
  const LayerSpec& layer = needs.model.layers[at(largest)];
  const UnitNeed need = need_alone(needs, largest);
  std::vector<std::string> parts;
  const auto add = [&](const char* what, Bytes bytes, const std::string& why) {
    if (bytes == 0) return;
    parts.push_back(fmt::format("{} {}{}", what, format_bytes(bytes),
                                why.empty() ? "" : fmt::format(" ({})", why)));
  };
  add("weights", need.weights, largest_weight(needs.model, layer));
  add("gradient sums", need.sums,
      needs.most_slots > 1 ? fmt::format("{} at a time", needs.most_slots) : "");
  add("activations", need.workspace, "");
  add("inputs and outputs", need.op_area, "");
  return fmt::format("layer {} needs most: {}", layer.name, fmt::join(parts, ", "));
}

}  // namespace spillway
