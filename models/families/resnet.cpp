#include "models/families/resnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "models/base/batch_norm.h"
#include "models/base/freeze.h"
#include "models/base/model_checks.h"
#include "models/families/resnet_layers.h"
#include "spillway/error.h"
#include "spillway/loss.h"
#include "spillway/model_builder.h"

namespace spillway {
namespace {

/// An edge with pictures.
struct Pictures {
  int edge = -1;
  std::int64_t channels = 0, size = 0;
};

/// Builds a residual network, front to back.
class ResnetBuilder {
 public:
  ResnetBuilder(const ResnetConfig& config, std::int64_t vn_size)
      : config_(config), sample_{"sample", vn_size} {}

  std::unique_ptr<Model> build() && {
    add_stem();
    for (std::size_t stage = 0; stage < config_.depths.size(); ++stage) {
      for (std::int64_t block = 0; block < config_.depths[stage]; ++block) add_block(stage, block);
    }
    add_head();
    freeze(model_.spec(), config_.freeze);
    return std::move(model_).build();
  }

 private:
  void add_stem();
  void add_block(std::size_t stage, std::int64_t block);
  void add_head();
  /// `conv` and `norm`: names of the parameters. `residual`: added, unless its edge is -1.
  Pictures add_conv_norm(const std::string& layer, const std::string& conv, const std::string& norm,
                         const Pictures& x, std::int64_t channels, ConvNorm options,
                         const Pictures& residual = {});

  std::string kind(const ConvNorm& options) const;

  const ResnetConfig& config_;
  ModelBuilder model_{"resnet"};
  const Dim sample_;
  Pictures last_;
};

/// Costs depend on more than shapes.
std::string ResnetBuilder::kind(const ConvNorm& options) const {
  return std::string("resnet.conv") + (options.is_first ? "/first" : "") +
         (options.has_relu ? "+relu" : "") + (options.dropout > 0 ? "+dropout" : "");
}

Pictures ResnetBuilder::add_conv_norm(const std::string& layer, const std::string& conv,
                                      const std::string& norm, const Pictures& x,
                                      std::int64_t channels, ConvNorm options,
                                      const Pictures& residual) {
  const Pictures y{.channels = channels, .size = (x.size - 1) / options.stride + 1};
  const Dim out{"channel", channels}, in{"channel_in", x.channels};
  const Dim height{"kernel_height", options.kernel}, width{"kernel_width", options.kernel};
  const auto outputs = static_cast<double>(sample_.size * channels * y.size * y.size);
  const auto area = static_cast<double>(options.kernel * options.kernel);
  std::vector<int> params{model_.add_param(
      {.name = conv + ".weight",
       .tensor = {DType::f32, {out, in, height, width}},
       .init = {InitSpec::Kind::normal, std::sqrt(2 / (static_cast<double>(channels) * area))}})};
  add_batch_norm(model_, params, norm, out, {config_.batch_norm_eps, config_.batch_norm_momentum});
  std::vector<int> inputs{x.edge};
  options.has_residual = residual.edge >= 0;
  if (options.has_residual) inputs.push_back(residual.edge);
  const int edge =
      model_.add_layer({.name = layer,
                        .kind = kind(options),
                        .params = std::move(params),
                        .inputs = std::move(inputs),
                        .forward_flops = 2 * outputs * area * static_cast<double>(x.channels),
                        .saved_elements = 3 * outputs},
                       make_conv_norm(options, config_),
                       {DType::f32, {sample_, out, {"height", y.size}, {"width", y.size}}});
  return {edge, y.channels, y.size};
}

void ResnetBuilder::add_stem() {
  const std::int64_t numbers = config_.num_channels * config_.image_size * config_.image_size;
  const int rows = model_.add_batch("rows", {DType::i64, {sample_, {"number", numbers + 1}}});
  model_.spec().indices = {{numbers, numbers + 1, config_.num_labels}};
  last_ = add_conv_norm("conv1", "conv1", "bn1", {rows, config_.num_channels, config_.image_size},
                        config_.hidden_sizes.front(), {.is_first = true});
}

void ResnetBuilder::add_block(std::size_t stage, std::int64_t block) {
  const std::string name = fmt::format("layer{}.{}.", stage + 1, block);
  const std::int64_t channels = config_.hidden_sizes[stage];
  const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
  const Pictures x = last_;
  Pictures shortcut = x;
  if (stride > 1 || channels != x.channels) {
    shortcut = add_conv_norm(name + "downsample", name + "downsample.0", name + "downsample.1", x,
                             channels, {.kernel = 1, .stride = stride, .has_relu = false});
  }
  const Pictures hidden = add_conv_norm(name + "conv1", name + "conv1", name + "bn1", x, channels,
                                        {.stride = stride, .dropout = config_.dropout});
  last_ =
      add_conv_norm(name + "conv2", name + "conv2", name + "bn2", hidden, channels, {}, shortcut);
}

void ResnetBuilder::add_head() {
  std::vector<int> params;
  model_.add_linear(params, "fc", {"label", config_.num_labels}, {"channel", last_.channels},
                    std::sqrt(1 / static_cast<double>(last_.channels)));
  model_.add_loss(
      {.name = "fc", .kind = "resnet.head", .params = std::move(params), .inputs = {last_.edge, 0}},
      make_resnet_head());
  model_.spec().metrics = {accuracy().spec};
}

std::int64_t most_elements(const ResnetConfig& config) {
  std::int64_t most = config.num_channels * config.image_size * config.image_size + 1;
  for (std::size_t stage = 0; stage < config.depths.size(); ++stage) {
    const std::int64_t size = config.size_in_stage(stage);
    most = std::max(most, config.hidden_sizes[stage] * size * size);
  }
  return most;
}

void check_variance(const ResnetConfig& config, std::int64_t vn_size) {
  const std::int64_t size = config.size_in_stage(config.depths.size() - 1);
  if (vn_size * size * size > 1) return;
  throw ConfigError(
      "train.batch_size", 0,
      "makes virtual nodes of 1 sample, whose channels have only 1 value in the last stage, "
      "and a single value has no variance; raise it or lower train.virtual_nodes");
}

}  // namespace

std::unique_ptr<Model> make_resnet(const ResnetConfig& config, std::int64_t vn_size) {
  config.validate();
  detail::check_vn_size(vn_size, most_elements(config));
  check_variance(config, vn_size);
  return ResnetBuilder(config, vn_size).build();
}

}  // namespace spillway
