#include "spillway/resnet_config.h"

#include <fmt/format.h>

#include <numeric>
#include <string>

#include "models/base/model_checks.h"
#include "models/families/family_fields.h"

namespace spillway {

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

}  // namespace spillway
