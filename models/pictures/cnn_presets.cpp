#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "models/pictures/cnn_graph.h"

namespace spillway {
namespace {

using Names = std::vector<std::string>;

/// The layers of all presets, whose channels and features are scaled.
class PresetList {
  using enum CnnLayerType;

 public:
  explicit PresetList(const CnnConfig& config) : config_(config) {}

  std::vector<CnnLayerConfig> take() && { return std::move(list_).take(); }

  void add_lenet();
  void add_alexnet();
  void add_inception();
  void add_resnet101();

 private:
  std::int64_t scaled(std::int64_t size) const {
    const double exact = static_cast<double>(size) * config_.width_mult;
    return std::max<std::int64_t>(1, std::llround(exact));
  }
  void conv_layer(const std::string& name, std::int64_t channels, std::int64_t kernel,
                  std::int64_t stride, std::int64_t padding, CnnActivation activation) {
    list_.add({.name = name,
               .out_channels = scaled(channels),
               .kernel_size = {kernel, kernel},
               .stride = {stride, stride},
               .padding = {padding, padding},
               .activation = activation});
  }
  std::string pool(CnnLayerType type, const std::string& name, std::int64_t kernel,
                   std::int64_t stride, std::int64_t padding = 0, Names inputs = {}) {
    return list_.add({.type = type,
                      .name = name,
                      .inputs = std::move(inputs),
                      .kernel_size = {kernel, kernel},
                      .stride = {stride, stride},
                      .padding = {padding, padding}});
  }
  void features(const std::string& name, std::int64_t size, CnnActivation activation) {
    list_.add(
        {.type = linear, .name = name, .out_features = scaled(size), .activation = activation});
  }
  void drop(const std::string& name) { list_.add({.type = dropout, .name = name, .p = 0.5}); }
  /// The last layer.
  void classes(const std::string& name) {
    list_.add({.type = linear, .name = name, .out_features = config_.num_classes});
  }

  /// Of Inception: convolution, batch normalization, ReLU.
  std::string basic(const std::string& name, const Names& inputs, std::int64_t channels,
                    CnnSize kernel, CnnSize padding = {0, 0}, std::int64_t stride = 1) {
    return list_.add({.name = name + ".conv",
                      .inputs = inputs,
                      .out_channels = scaled(channels),
                      .kernel_size = kernel,
                      .stride = {stride, stride},
                      .padding = padding,
                      .batch_norm = name + ".bn",
                      .activation = CnnActivation::relu});
  }
  std::string join(const std::string& name, const Names& branches) {
    return list_.add({.type = concat, .name = name, .inputs = branches});
  }
  std::string pool_branch(const std::string& block, const std::string& x, std::int64_t channels) {
    const std::string pooled = pool(avg_pool, block + ".pool", 3, 1, 1, {x});
    return basic(block + ".branch_pool", {pooled}, channels, {1, 1});
  }
  std::string inception_a(const std::string& block, const std::string& x, std::int64_t pooled);
  std::string inception_b(const std::string& block, const std::string& x);
  std::string inception_c(const std::string& block, const std::string& x, std::int64_t inner);
  std::string inception_d(const std::string& block, const std::string& x);
  std::string inception_e(const std::string& block, const std::string& x);

  const CnnConfig& config_;
  CnnList list_;
};

void PresetList::add_lenet() {
  using enum CnnActivation;
  conv_layer("conv1", 6, 5, 1, 0, tanh);
  pool(avg_pool, "pool1", 2, 2);
  conv_layer("conv2", 16, 5, 1, 0, tanh);
  pool(avg_pool, "pool2", 2, 2);
  features("fc1", 120, tanh);
  features("fc2", 84, tanh);
  classes("fc3");
}

void PresetList::add_alexnet() {
  using enum CnnActivation;
  conv_layer("features.0", 64, 11, 4, 2, relu);
  pool(max_pool, "features.2", 3, 2);
  conv_layer("features.3", 192, 5, 1, 2, relu);
  pool(max_pool, "features.5", 3, 2);
  conv_layer("features.6", 384, 3, 1, 1, relu);
  conv_layer("features.8", 256, 3, 1, 1, relu);
  conv_layer("features.10", 256, 3, 1, 1, relu);
  pool(max_pool, "features.12", 3, 2);
  drop("classifier.0");
  features("classifier.1", 4096, relu);
  drop("classifier.3");
  features("classifier.4", 4096, relu);
  classes("classifier.6");
}

/// Branches of 1 x 1, 5 x 5, two 3 x 3, and pooling.
std::string PresetList::inception_a(const std::string& block, const std::string& x,
                                    std::int64_t pooled) {
  const std::string one = basic(block + ".branch1x1", {x}, 64, {1, 1});
  std::string five = basic(block + ".branch5x5_1", {x}, 48, {1, 1});
  five = basic(block + ".branch5x5_2", {five}, 64, {5, 5}, {2, 2});
  std::string three = basic(block + ".branch3x3dbl_1", {x}, 64, {1, 1});
  three = basic(block + ".branch3x3dbl_2", {three}, 96, {3, 3}, {1, 1});
  three = basic(block + ".branch3x3dbl_3", {three}, 96, {3, 3}, {1, 1});
  return join(block, {one, five, three, pool_branch(block, x, pooled)});
}

/// Halves the picture.
std::string PresetList::inception_b(const std::string& block, const std::string& x) {
  const std::string three = basic(block + ".branch3x3", {x}, 384, {3, 3}, {0, 0}, 2);
  std::string twice = basic(block + ".branch3x3dbl_1", {x}, 64, {1, 1});
  twice = basic(block + ".branch3x3dbl_2", {twice}, 96, {3, 3}, {1, 1});
  twice = basic(block + ".branch3x3dbl_3", {twice}, 96, {3, 3}, {0, 0}, 2);
  return join(block, {three, twice, pool(max_pool, block + ".pool", 3, 2, 0, {x})});
}

/// 7 x 7 as 1 x 7 and 7 x 1, once and twice.
std::string PresetList::inception_c(const std::string& block, const std::string& x,
                                    std::int64_t inner) {
  constexpr CnnSize kRow{1, 7}, kColumn{7, 1}, kPadRow{0, 3}, kPadColumn{3, 0};
  const std::string one = basic(block + ".branch1x1", {x}, 192, {1, 1});
  std::string once = basic(block + ".branch7x7_1", {x}, inner, {1, 1});
  once = basic(block + ".branch7x7_2", {once}, inner, kRow, kPadRow);
  once = basic(block + ".branch7x7_3", {once}, 192, kColumn, kPadColumn);
  std::string twice = basic(block + ".branch7x7dbl_1", {x}, inner, {1, 1});
  twice = basic(block + ".branch7x7dbl_2", {twice}, inner, kColumn, kPadColumn);
  twice = basic(block + ".branch7x7dbl_3", {twice}, inner, kRow, kPadRow);
  twice = basic(block + ".branch7x7dbl_4", {twice}, inner, kColumn, kPadColumn);
  twice = basic(block + ".branch7x7dbl_5", {twice}, 192, kRow, kPadRow);
  return join(block, {one, once, twice, pool_branch(block, x, 192)});
}

/// Halves the picture.
std::string PresetList::inception_d(const std::string& block, const std::string& x) {
  std::string three = basic(block + ".branch3x3_1", {x}, 192, {1, 1});
  three = basic(block + ".branch3x3_2", {three}, 320, {3, 3}, {0, 0}, 2);
  std::string seven = basic(block + ".branch7x7x3_1", {x}, 192, {1, 1});
  seven = basic(block + ".branch7x7x3_2", {seven}, 192, {1, 7}, {0, 3});
  seven = basic(block + ".branch7x7x3_3", {seven}, 192, {7, 1}, {3, 0});
  seven = basic(block + ".branch7x7x3_4", {seven}, 192, {3, 3}, {0, 0}, 2);
  return join(block, {three, seven, pool(max_pool, block + ".pool", 3, 2, 0, {x})});
}

/// 1 x 3 and 3 x 1 beside each other.
std::string PresetList::inception_e(const std::string& block, const std::string& x) {
  const std::string one = basic(block + ".branch1x1", {x}, 320, {1, 1});
  const std::string three = basic(block + ".branch3x3_1", {x}, 384, {1, 1});
  const std::string row = basic(block + ".branch3x3_2a", {three}, 384, {1, 3}, {0, 1});
  const std::string column = basic(block + ".branch3x3_2b", {three}, 384, {3, 1}, {1, 0});
  std::string twice = basic(block + ".branch3x3dbl_1", {x}, 448, {1, 1});
  twice = basic(block + ".branch3x3dbl_2", {twice}, 384, {3, 3}, {1, 1});
  const std::string row_2 = basic(block + ".branch3x3dbl_3a", {twice}, 384, {1, 3}, {0, 1});
  const std::string column_2 = basic(block + ".branch3x3dbl_3b", {twice}, 384, {3, 1}, {1, 0});
  return join(block, {one, row, column, row_2, column_2, pool_branch(block, x, 192)});
}

void PresetList::add_inception() {
  basic("Conv2d_1a_3x3", {}, 32, {3, 3}, {0, 0}, 2);
  basic("Conv2d_2a_3x3", {}, 32, {3, 3});
  basic("Conv2d_2b_3x3", {}, 64, {3, 3}, {1, 1});
  pool(max_pool, "maxpool1", 3, 2);
  basic("Conv2d_3b_1x1", {}, 80, {1, 1});
  basic("Conv2d_4a_3x3", {}, 192, {3, 3});
  std::string x = pool(max_pool, "maxpool2", 3, 2);
  x = inception_a("Mixed_5b", x, 32);
  x = inception_a("Mixed_5c", x, 64);
  x = inception_a("Mixed_5d", x, 64);
  x = inception_b("Mixed_6a", x);
  x = inception_c("Mixed_6b", x, 128);
  x = inception_c("Mixed_6c", x, 160);
  x = inception_c("Mixed_6d", x, 160);
  x = inception_c("Mixed_6e", x, 192);
  x = inception_d("Mixed_7a", x);
  x = inception_e("Mixed_7b", x);
  inception_e("Mixed_7c", x);
  list_.add({.type = global_avg_pool, .name = "avgpool"});
  drop("dropout");
  classes("fc");
}

/// Bottlenecks: 1 x 1, 3 x 3, and 1 x 1 with four times the channels.
void PresetList::add_resnet101() {
  constexpr auto kNone = CnnActivation::none;
  constexpr std::array<std::int64_t, 4> kDepths{3, 4, 23, 3};
  list_.add_conv_norm("conv1", "bn1", "", scaled(64), 7, 2);
  std::string x = pool(max_pool, "maxpool", 3, 2, 1);
  for (std::size_t stage = 0; stage < kDepths.size(); ++stage) {
    const std::int64_t inner = scaled(std::int64_t{64} << stage), outer = 4 * inner;
    for (std::int64_t block = 0; block < kDepths[stage]; ++block) {
      const std::string name = fmt::format("layer{}.{}.", stage + 1, block);
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      const std::string shortcut =
          block > 0 ? x
                    : list_.add_conv_norm(name + "downsample.0", name + "downsample.1", x, outer, 1,
                                          stride, kNone);
      std::string y = list_.add_conv_norm(name + "conv1", name + "bn1", x, inner, 1);
      y = list_.add_conv_norm(name + "conv2", name + "bn2", y, inner, 3, stride);
      y = list_.add_conv_norm(name + "conv3", name + "bn3", y, outer, 1, 1, kNone);
      x = list_.add({.type = CnnLayerType::add,
                     .name = name + "add",
                     .inputs = {y, shortcut},
                     .activation = CnnActivation::relu});
    }
  }
  list_.add({.type = global_avg_pool, .name = "avgpool"});
  classes("fc");
}

}  // namespace

std::string CnnList::add(CnnLayerConfig layer) {
  layers_.push_back(std::move(layer));
  return layers_.back().name;
}

std::string CnnList::add_conv_norm(const std::string& name, const std::string& norm,
                                   const std::string& input, std::int64_t channels,
                                   std::int64_t kernel, std::int64_t stride,
                                   CnnActivation activation) {
  CnnLayerConfig layer{.name = name,
                       .out_channels = channels,
                       .kernel_size = {kernel, kernel},
                       .stride = {stride, stride},
                       .padding = {kernel / 2, kernel / 2},
                       .batch_norm = norm,
                       .activation = activation};
  if (!input.empty()) layer.inputs = {input};
  return add(std::move(layer));
}

std::vector<CnnLayerConfig> preset_layers(const CnnConfig& config) {
  PresetList list(config);
  if (config.preset == CnnPreset::lenet) list.add_lenet();
  if (config.preset == CnnPreset::alexnet) list.add_alexnet();
  if (config.preset == CnnPreset::inception_v3) list.add_inception();
  if (config.preset == CnnPreset::resnet101) list.add_resnet101();
  return std::move(list).take();
}

}  // namespace spillway
