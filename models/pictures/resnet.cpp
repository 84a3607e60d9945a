#include "models/pictures/resnet.h"

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <utility>

#include "models/base/model_checks.h"
#include "models/pictures/cnn.h"
#include "models/pictures/cnn_graph.h"
#include "models/pictures/picture_fields.h"

namespace spillway {
namespace {

std::vector<CnnLayerConfig> layers_of(const ResnetConfig& config) {
  constexpr auto kNone = CnnActivation::none;
  CnnList list;
  std::int64_t channels = config.hidden_sizes.front();
  std::string x = list.add_conv_norm("conv1", "bn1", "", channels, 3);
  for (std::size_t stage = 0; stage < config.depths.size(); ++stage) {
    const std::int64_t out = config.hidden_sizes[stage];
    for (std::int64_t block = 0; block < config.depths[stage]; ++block) {
      const std::string name = fmt::format("layer{}.{}.", stage + 1, block);
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      std::string shortcut = x;
      if (stride > 1 || out != channels) {
        shortcut = list.add_conv_norm(name + "downsample.0", name + "downsample.1", x, out, 1,
                                      stride, kNone);
      }
      list.add_conv_norm(name + "conv1", name + "bn1", x, out, 3, stride);
      const std::string hidden =
          list.add({.type = CnnLayerType::dropout, .name = name + "dropout", .p = config.dropout});
      const std::string branch =
          list.add_conv_norm(name + "conv2", name + "bn2", hidden, out, 3, 1, kNone);
      x = list.add({.type = CnnLayerType::add,
                    .name = name + "add",
                    .inputs = {branch, shortcut},
                    .activation = CnnActivation::relu});
      channels = out;
    }
  }
  list.add({.type = CnnLayerType::global_avg_pool, .name = "avgpool"});
  list.add({.type = CnnLayerType::linear, .name = "fc", .out_features = config.num_labels});
  return std::move(list).take();
}

}  // namespace

void ResnetConfig::validate() const {
  using namespace detail;
  ConfigCheck check("model.");
  FieldCheck fields(check);
  visit_resnet(*this, fields);
  const bool has_channels = require_range(check, num_channels, 1, kMaxSize, "num_channels");
  const bool has_pictures =
      require_range(check, image_size, 1, 1 << 16, "image_size") && has_channels;
  require_positive(check, input_scale, "input_scale");
  require_range(check, num_labels, 1, kMaxSize, "num_labels");
  const bool has_stages = check.require(!hidden_sizes.empty(), "hidden_sizes",
                                        "is empty; write the channels of each stage");
  check.require(
      depths.size() == hidden_sizes.size(), "depths",
      fmt::format("has {} stages, model.hidden_sizes has {}; write a number for each stage in both",
                  depths.size(), hidden_sizes.size()));
  if (has_pictures && has_stages) {
    check.require(
        hidden_sizes.size() == 1 || size_in_stage(hidden_sizes.size() - 2) > 1, "hidden_sizes",
        fmt::format("has {} stages, but pictures of {} x {} cannot be halved as often; use fewer",
                    hidden_sizes.size(), image_size, image_size));
  }
  if (has_pictures) {
    require_range(check, num_channels * image_size * image_size, 1, kMaxTensorElements,
                  "image_size");
  }
  require_dropout(check, dropout);
  check.finish();
}

std::int64_t ResnetConfig::size_in_stage(std::size_t stage) const {
  std::int64_t size = image_size;
  for (std::size_t s = 0; s < stage; ++s) size = (size + 1) / 2;
  return size;
}

std::int64_t ResnetConfig::num_layers() const {
  // Stem and head, two for each block, and the shortcut of each stage that changes the shape.
  std::int64_t layers = 2 + 2 * std::accumulate(depths.begin(), depths.end(), std::int64_t{0});
  return layers + static_cast<std::int64_t>(depths.size()) - 1;
}

std::unique_ptr<Model> make_resnet(const ResnetConfig& config, std::int64_t vn_size) {
  config.validate();
  const CnnConfig cnn{.num_channels = config.num_channels,
                      .image_size = config.image_size,
                      .num_classes = config.num_labels,
                      .input_scale = config.input_scale,
                      .batch_norm_eps = config.batch_norm_eps,
                      .batch_norm_momentum = config.batch_norm_momentum,
                      .layers = layers_of(config),
                      .freeze = config.freeze};
  return make_cnn(cnn, vn_size, "resnet");
}

}  // namespace spillway
