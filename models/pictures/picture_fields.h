#pragma once

#include <cstdint>

#include "models/base/field_ranges.h"
#include "spillway/cnn_config.h"
#include "spillway/resnet_config.h"

/// The fields of convolutional networks, see core/base/field.h. `Config` is the struct, constant or
/// not.
namespace spillway {

inline constexpr const char* kNormEpsText =
    "Epsilon of batch normalization. Each virtual node is normalized by its own statistics.";
inline constexpr const char* kNormMomentumText =
    "Momentum of the running statistics, which evaluation uses. They move once per step, by the "
    "mean over virtual nodes.";

template <typename Config, typename Visitor>
void visit_resnet(Config& resnet, Visitor& v) {
  using enum InContract;
  v.field("hidden_sizes", resnet.hidden_sizes, IntRange{1, 1 << 15},
          "Channels of each stage; each stage after the first halves the picture.", yes);
  v.field("depths", resnet.depths, kNumLayers, "Blocks of each stage.", yes);
  v.field("dropout", resnet.dropout, kBelowOne, kDropoutText, yes);
  v.field("batch_norm_eps", resnet.batch_norm_eps, kAboveZero, kNormEpsText, yes);
  v.field("batch_norm_momentum", resnet.batch_norm_momentum, NumberRange{.min = 0, .max = 1},
          kNormMomentumText, yes);
  v.field("freeze", resnet.freeze, TextList{.may_be_empty = true}, kFreezeText, yes);
}

/// The keys of convolutions and pooling. `Config` is CnnLayerConfig, constant or not.
template <typename Config, typename Visitor>
void visit_cnn_window(Config& layer, Visitor& v) {
  using enum InContract;
  constexpr std::int64_t kMost = 4096;
  v.require_key("kernel_size", "write it, such as 3 or [1, 7]");
  v.field("kernel_size", layer.kernel_size, IntRange{1, kMost},
          "Height and width of the window of a `conv`, `max_pool` or `avg_pool`: one number, or "
          "`[height, width]`.",
          yes);
  v.field("stride", layer.stride, IntRange{0, kMost},
          "Step from one window to the next; 0: 1 for a `conv`, `kernel_size` for pooling.", yes);
  v.field("padding", layer.padding, IntRange{0, kMost},
          "Rows and columns added at each side; for pooling at most half of `kernel_size`.", yes);
}

/// Whether a layer of this type can end with an activation function.
constexpr bool has_activation(CnnLayerType type) {
  return type == CnnLayerType::conv || type == CnnLayerType::linear || type == CnnLayerType::add;
}

/// `Config` is CnnLayerConfig, constant or not.
template <typename Config, typename Visitor>
void visit_cnn_layer(Config& layer, Visitor& v) {
  using enum InContract;
  using enum CnnLayerType;
  v.require_key("type", "write one, such as conv or linear");
  v.field("type", layer.type, kAny,
          "What it computes, with the names and meaning of PyTorch. `global_avg_pool` and "
          "`global_max_pool` pool over the whole picture.",
          yes);
  const CnnLayerType type = layer.type;
  if (v.shows(!layer.name.empty())) {
    v.field("name", layer.name, kAny,
            "First part of the names of its parameters; by default its position in the list, from "
            "0.",
            yes);
  }
  if (v.shows(!layer.inputs.empty())) {
    v.field("inputs", layer.inputs, TextList{},
            "Names of the earlier layers that it reads; `input` is the picture. By default the "
            "layer before it.",
            yes);
  }
  if (v.applies(type == conv)) {
    v.require_key("out_channels", "write their number, such as 64");
    v.field("out_channels", layer.out_channels, kSize, "Output channels of a `conv`.", yes);
  }
  if (v.applies(type == conv || type == max_pool || type == avg_pool)) visit_cnn_window(layer, v);
  if (v.applies(type == conv) && v.shows(!layer.batch_norm.empty())) {
    v.field("batch_norm", layer.batch_norm, kAny,
            "Batch normalization after a `conv`, which then has no bias: the first part of the "
            "names of its parameters, or `true` for the layer's name and `.bn`.",
            yes);
  }
  if (v.applies(type == linear)) {
    v.require_key("out_features", "write their number, such as 128");
    v.field("out_features", layer.out_features, kSize,
            "Output features of a `linear`, which reads all values of a sample.", yes);
  }
  if (v.applies(has_activation(type))) {
    v.field("activation", layer.activation, kAny,
            "Activation function at the end of a `conv`, `linear` or `add`.", yes);
  }
  if (v.applies(type == dropout)) v.field("p", layer.p, kBelowOne, kDropoutText, yes);
}

template <typename Config, typename Visitor>
void visit_cnn(Config& cnn, Visitor& v) {
  using enum InContract;
  v.field(
      "preset", cnn.preset, kAny,
      "A known network: LeNet-5 or, with the sizes and names of torchvision, AlexNet, "
      "Inception-v3 (without the auxiliary classifier; torchvision's `batch_norm_eps` is 0.001), "
      "ResNet-101. `none`: `layers`.",
      yes);
  v.field("width_mult", cnn.width_mult, NumberRange{.min = 0, .max = 64, .above_min = true},
          "Factor for the channels and features of a `preset`.", yes);
  v.field("num_channels", cnn.num_channels, kSize, "Channels of a picture.", yes);
  v.field("image_size", cnn.image_size, IntRange{1, 1 << 16}, "Height and width of a picture.",
          yes);
  v.field("num_classes", cnn.num_classes, kSize, "Number of classes.", yes);
  v.field("input_scale", cnn.input_scale, kAboveZero,
          "Factor for the values of a picture: by default 1/255; `digits` need 0.0625.", yes);
  v.field("batch_norm_eps", cnn.batch_norm_eps, kAboveZero, kNormEpsText, yes);
  v.field("batch_norm_momentum", cnn.batch_norm_momentum, NumberRange{.min = 0, .max = 1},
          kNormMomentumText, yes);
  if (v.shows(!cnn.layers.empty())) {
    v.list(
        "layers", cnn.layers, "[{type: conv, out_channels: 8, kernel_size: 3}]",
        "List of layers, see below. The last one has one output for each class.",
        [](auto& layer, auto& item) { visit_cnn_layer(layer, item); }, yes);
  }
  if (v.shows(cnn.pieces != CnnPieces{})) {
    v.section("pieces", [&](auto& pieces) {
      pieces.field("channels", cnn.pieces.channels, kPieces,
                   "Number of layers into which a convolution is divided, by output channels, and "
                   "a linear layer, by its outputs; a layer with fewer has one for each. `auto`: "
                   "at least 64 channels or 512 outputs each, up to 8.",
                   yes);
      pieces.field("height", cnn.pieces.height, IntRange{.min = 1, .max = 64},
                   "Number of pieces into which a convolution, pooling or sum is divided, by the "
                   "rows of its pictures; a layer with fewer rows has one for each. Convolutions "
                   "are then not divided by channels. Layers with dropout, and the last one, stay "
                   "whole.",
                   yes);
    });
  }
  v.field("freeze", cnn.freeze, TextList{.may_be_empty = true}, kFreezeText, yes);
}

}  // namespace spillway
