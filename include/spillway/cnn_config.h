#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "spillway/choices.h"

namespace spillway {

/// What a layer of a convolutional network computes.
enum class CnnLayerType : std::uint8_t {
  conv,             ///< convolution, then batch normalization if it has one
  max_pool,         ///< maximum of each window
  avg_pool,         ///< mean of each window; padding counts as zeros
  global_max_pool,  ///< maximum of each channel: [C, 1, 1]
  global_avg_pool,  ///< mean of each channel: [C, 1, 1]
  linear,           ///< of all values of a sample
  concat,           ///< the channels of all inputs, one after the other
  add,              ///< sum of all inputs
  flatten,          ///< pictures as features, channel by channel
  dropout           ///< each element is dropped with probability `p`
};
template <>
inline constexpr std::array kNames<CnnLayerType>{
    "conv",   "max_pool", "avg_pool", "global_max_pool", "global_avg_pool",
    "linear", "concat",   "add",      "flatten",         "dropout"};  ///< names

/// Activation function of a layer of a convolutional network.
enum class CnnActivation : std::uint8_t { none, relu, gelu, tanh };
template <>
inline constexpr std::array kNames<CnnActivation>{"none", "relu", "gelu", "tanh"};  ///< names

/// A known convolutional network.
enum class CnnPreset : std::uint8_t { none, lenet, alexnet, inception_v3, resnet101 };
template <>
inline constexpr std::array kNames<CnnPreset>{"none", "lenet", "alexnet", "inception_v3",
                                              "resnet101"};  ///< names

/// Height and width.
using CnnSize = std::array<std::int64_t, 2>;

/// A layer of a convolutional network; names follow PyTorch. A layer type uses only some members.
struct CnnLayerConfig {
  CnnLayerType type = CnnLayerType::conv;  ///< what it computes
  std::string name;                        ///< empty: its position in the list
  std::vector<std::string> inputs;         ///< layers that it reads; empty: the previous one
  std::int64_t out_channels = 0;           ///< of a convolution
  CnnSize kernel_size{0, 0};               ///< of a convolution or pooling
  CnnSize stride{0, 0};                    ///< 0: 1; of pooling: `kernel_size`
  CnnSize padding{0, 0};                   ///< at each side
  std::string batch_norm;                  ///< name; "true": NAME.bn; "", "false": none
  std::int64_t out_features = 0;           ///< of a linear layer
  CnnActivation activation = CnnActivation::none;  ///< of a convolution, linear layer or sum
  double p = 0;                                    ///< of dropout
  bool operator==(const CnnLayerConfig&) const = default;
};

/// Into how many pieces the layers of a convolutional network are divided.
struct CnnPieces {
  /// Of a convolution, by output channels, and of a linear layer; 0: automatic.
  std::int64_t channels = 1;
  /// Of convolutions, poolings and sums, by rows of their pictures; then no convolution is divided
  /// by channels.
  std::int64_t height = 1;
  bool operator==(const CnnPieces&) const = default;
};

/// A convolutional network that classifies pictures: a graph of layers, or a preset.
struct CnnConfig {
  CnnPreset preset = CnnPreset::none;  ///< none: `layers`
  double width_mult = 1;               ///< factor for the channels and features of a preset
  std::int64_t num_channels = 3;       ///< of a picture; its values come before its label
  std::int64_t image_size = 224;       ///< height and width of a picture
  std::int64_t num_classes = 1000;     ///< labels are below
  double input_scale = 1.0 / 255;      ///< factor for the values of a picture
  double batch_norm_eps = 1e-5;        ///< epsilon of batch normalization
  double batch_norm_momentum = 0.1;    ///< of the running statistics
  std::vector<CnnLayerConfig> layers;  ///< in an order in which each reads earlier ones
  CnnPieces pieces;                    ///< of its layers
  std::vector<std::string> freeze;  ///< patterns of parameters to freeze, see models/base/freeze.h

  /// Throws ConfigError that names the field (`model.layers[2].kernel_size`, ...), the value and
  /// the remedy.
  void validate() const;
  /// `layers`, or those of the preset, all with names.
  std::vector<CnnLayerConfig> all_layers() const;
  /// Number of layers of the undivided model, the loss included. The configuration must be valid.
  std::int64_t num_layers() const;
};

}  // namespace spillway
