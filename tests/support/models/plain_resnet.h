#pragma once

#include <torch/torch.h>

#include <cstring>
#include <functional>
#include <string>

#include "spillway/model.h"
#include "spillway/resnet_config.h"

/// The residual network of models/pictures/resnet.h in plain LibTorch modules, with the names of
/// torchvision and without dropout.
namespace spillway::testing {

inline torch::nn::Conv2d plain_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                    std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

inline torch::nn::BatchNorm2d plain_norm(std::int64_t channels, const ResnetConfig& config) {
  return torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(channels)
                                    .eps(config.batch_norm_eps)
                                    .momentum(config.batch_norm_momentum));
}

struct PlainBlockImpl : torch::nn::Module {
  PlainBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride, const ResnetConfig& config)
      : conv1(register_module("conv1", plain_conv(in, out, 3, stride))),
        conv2(register_module("conv2", plain_conv(out, out, 3, 1))),
        bn1(register_module("bn1", plain_norm(out, config))),
        bn2(register_module("bn2", plain_norm(out, config))) {
    if (in == out && stride == 1) return;
    downsample = register_module("downsample", torch::nn::Sequential(plain_conv(in, out, 1, stride),
                                                                     plain_norm(out, config)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto branch = bn2(conv2(torch::relu(bn1(conv1(x)))));
    return torch::relu(branch + (downsample.is_empty() ? x : downsample->forward(x)));
  }
  torch::nn::Conv2d conv1, conv2;
  torch::nn::BatchNorm2d bn1, bn2;
  torch::nn::Sequential downsample{nullptr};
};
TORCH_MODULE(PlainBlock);

struct PlainResnetImpl : torch::nn::Module {
  explicit PlainResnetImpl(const ResnetConfig& config) : config_(config) {
    std::int64_t channels = config.hidden_sizes[0];
    conv1 = register_module("conv1", plain_conv(config.num_channels, channels, 3, 1));
    bn1 = register_module("bn1", plain_norm(channels, config));
    for (std::size_t s = 0; s < config.depths.size(); ++s) {
      torch::nn::Sequential stage;
      for (std::int64_t b = 0; b < config.depths[s]; ++b) {
        stage->push_back(
            PlainBlock(channels, config.hidden_sizes[s], s > 0 && b == 0 ? 2 : 1, config));
        channels = config.hidden_sizes[s];
      }
      stages.push_back(register_module("layer" + std::to_string(s + 1), stage));
    }
    fc = register_module("fc", torch::nn::Linear(channels, config.num_labels));
  }

  /// [B, numbers + 1] -> [B, labels].
  torch::Tensor logits(const torch::Tensor& rows) {
    const std::int64_t numbers = rows.size(1) - 1, size = config_.image_size;
    auto x = rows.narrow(1, 0, numbers).to(torch::kFloat) * config_.input_scale;
    x = torch::relu(bn1(conv1(x.reshape({rows.size(0), config_.num_channels, size, size}))));
    for (auto& stage : stages) x = stage->forward(x);
    return fc(x.mean({2, 3}));
  }
  /// Sum of the cross entropies; the labels are the last column of `rows`.
  torch::Tensor loss(const torch::Tensor& rows) {
    return torch::cross_entropy_loss(logits(rows), rows.select(1, rows.size(1) - 1), {},
                                     at::Reduction::Sum);
  }

  /// A parameter or a buffer; undefined if there is none of that name.
  torch::Tensor value(const std::string& name) {
    for (const auto& all : {named_parameters(), named_buffers()}) {
      if (const auto* found = all.find(name)) return *found;
    }
    return {};
  }

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};
  std::vector<torch::nn::Sequential> stages;
  torch::nn::Linear fc{nullptr};

 private:
  ResnetConfig config_;
};
TORCH_MODULE(PlainResnet);

}  // namespace spillway::testing
