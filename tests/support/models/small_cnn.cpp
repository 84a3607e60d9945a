#include "tests/support/models/small_cnn.h"

#include <ATen/ATen.h>

#include "models/pictures/cnn.h"
#include "tests/support/models/small_resnet.h"

namespace spillway::testing {

CnnConfig small_cnn(double drop, const CnnPieces& pieces) {
  using enum CnnLayerType;
  using enum CnnActivation;
  CnnConfig config{.num_channels = 1, .image_size = 8, .num_classes = 10, .input_scale = 1.0 / 16};
  config.layers = {{.name = "conv1",
                    .out_channels = 6,
                    .kernel_size = {3, 3},
                    .padding = {1, 1},
                    .batch_norm = "bn1",
                    .activation = relu},
                   {.type = max_pool, .name = "pool", .kernel_size = {2, 2}},
                   {.name = "left",
                    .inputs = {"pool"},
                    .out_channels = 5,
                    .kernel_size = {1, 3},
                    .padding = {0, 1},
                    .activation = gelu},
                   {.type = avg_pool,
                    .name = "right",
                    .inputs = {"pool"},
                    .kernel_size = {3, 3},
                    .stride = {1, 1},
                    .padding = {1, 1}},
                   {.type = concat, .name = "both", .inputs = {"left", "right"}},
                   {.name = "conv2",
                    .out_channels = 6,
                    .kernel_size = {3, 3},
                    .padding = {1, 1},
                    .batch_norm = "true"},
                   {.type = add, .name = "sum", .inputs = {"conv2", "pool"}, .activation = relu},
                   {.type = dropout, .name = "drop", .p = drop},
                   {.type = global_avg_pool, .name = "means"},
                   {.type = global_max_pool, .name = "maxima", .inputs = {"drop"}},
                   {.type = concat, .name = "pooled", .inputs = {"means", "maxima"}},
                   {.type = flatten},
                   {.type = linear, .name = "fc1", .out_features = 7, .activation = tanh},
                   {.type = linear, .name = "fc2", .out_features = 10}};
  config.pieces = pieces;
  return config;
}

at::Tensor plain_small_cnn(const at::Tensor& rows, const ValueOf& value) {
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return at::batch_norm(x, value(name + ".weight"), value(name + ".bias"), {}, {}, true, 0, 1e-5,
                          false);
  };
  const at::Tensor pictures = rows.narrow(1, 0, 64).to(at::kFloat).view({-1, 1, 8, 8}) / 16;
  const at::Tensor conv1 =
      at::relu(norm(at::conv2d(pictures, value("conv1.weight"), {}, 1, 1), "bn1"));
  const at::Tensor pool = at::max_pool2d(conv1, 2);
  const at::Tensor left = at::gelu(
      at::conv2d(pool, value("left.weight"), value("left.bias"), 1, at::IntArrayRef{0, 1}));
  const at::Tensor both = at::cat({left, at::avg_pool2d(pool, 3, 1, 1)}, 1);
  const at::Tensor conv2 = norm(at::conv2d(both, value("conv2.weight"), {}, 1, 1), "conv2.bn");
  const at::Tensor sum = at::relu(conv2 + pool);
  const at::Tensor pooled = at::cat({sum.mean({2, 3}), at::amax(sum, {2, 3})}, 1);
  const at::Tensor fc1 = at::tanh(at::linear(pooled, value("fc1.weight"), value("fc1.bias")));
  const at::Tensor logits = at::linear(fc1, value("fc2.weight"), value("fc2.bias"));
  return at::cross_entropy_loss(logits, rows.select(1, 64), {}, at::Reduction::Sum);
}

TrialConfig cnn_trial(const CnnConfig& model, std::int64_t vn_size) {
  TrialConfig trial = resnet_trial(small_resnet(), vn_size);
  trial.name = "cnn";
  trial.model = [model](std::int64_t size) { return make_cnn(model, size); };
  return trial;
}

}  // namespace spillway::testing
