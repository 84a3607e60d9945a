#include "spillway/cnn_config.h"

#include <fmt/format.h>

#include "models/base/model_checks.h"
#include "models/pictures/cnn_graph.h"
#include "models/pictures/picture_fields.h"

namespace spillway {

void CnnConfig::validate() const {
  using namespace detail;
  ConfigCheck check("model.");
  FieldCheck fields(check);
  visit_cnn(*this, fields);
  const bool is_preset = preset != CnnPreset::none;
  check.require(is_preset || !layers.empty(), "layers",
                "is empty; list the layers, or choose a model.preset");
  check.require(
      !is_preset || layers.empty(), "layers",
      fmt::format("cannot be used with model.preset: {}; remove one of them", to_string(preset)));
  check.require(is_preset || width_mult == 1, "width_mult",
                fmt::format("is {}, but there is no model.preset; write the channels of each layer "
                            "instead",
                            width_mult));
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const CnnLayerConfig& layer = layers[l];
    require_dropout(check, layer.p, fmt::format("layers[{}].p", l));
    check.require(layer.activation == CnnActivation::none || has_activation(layer.type),
                  fmt::format("layers[{}].activation", l),
                  fmt::format("is {}, but a layer of type {} has none; remove it",
                              to_string(layer.activation), to_string(layer.type)));
  }
  check.finish();
  require_range(check, num_channels * image_size * image_size, 1, kMaxTensorElements, "image_size");
  check.finish();
  cnn_steps(*this);
}

std::vector<CnnLayerConfig> CnnConfig::all_layers() const {
  if (preset != CnnPreset::none) return preset_layers(*this);
  std::vector<CnnLayerConfig> named = layers;
  for (std::size_t l = 0; l < named.size(); ++l) {
    if (named[l].name.empty()) named[l].name = fmt::format("{}", l);
  }
  return named;
}

std::int64_t CnnConfig::num_layers() const {
  return static_cast<std::int64_t>(cnn_steps(*this).size());
}

}  // namespace spillway
