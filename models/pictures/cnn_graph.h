#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "spillway/cnn_config.h"

/// The graph of a convolutional network, with the sizes of all values.
namespace spillway {

/// Shape of a sample's value: pictures [C, H, W], or features [C].
struct CnnShape {
  std::int64_t channels = 0, height = 1, width = 1;
  bool is_flat = false;  ///< features

  std::int64_t area() const { return height * width; }
  std::int64_t elements() const { return channels * area(); }
  bool operator==(const CnnShape&) const = default;
};

/// What happens to each channel of a value on its way to the layer that reads it.
enum class CnnPool : std::uint8_t { none, average, maximum };

/// The output of a step as a layer reads it.
struct CnnSource {
  int step = -1;  ///< -1: the pictures of the batch
  CnnPool pool = CnnPool::none;
  bool flat = false;  ///< as features
};

/// One layer of the model. Global pooling, `flatten` and `concat` belong to the layers that read
/// their results. Where nothing else reads a layer, the dropout after it is part of it, and so is
/// the sum after a convolution without activation.
struct CnnStep {
  CnnLayerConfig layer;  ///< of another type than conv, linear and pooling: the identity
  /// Values to add, each a concatenation. Only the first goes through the layer.
  std::vector<std::vector<CnnSource>> terms;
  CnnShape in, out;  ///< `in`: of the first term
  double dropout = 0;
};

/// The layers in order; the last one makes the logits. Throws ConfigErrors.
std::vector<CnnStep> cnn_steps(const CnnConfig& config);

/// Throws ConfigError (`train.batch_size`) if virtual nodes of so many samples make tensors that
/// are too large, or have a single value of a channel that is normalised.
void check_virtual_node(const CnnConfig& config, const std::vector<CnnStep>& steps,
                        std::int64_t vn_size);

/// The name of a convolution's batch normalization; empty: it has none.
std::string norm_name(const CnnLayerConfig& layer);

/// Writes lists of layers.
class CnnList {
 public:
  /// Both return the name.
  std::string add(CnnLayerConfig layer);
  /// A convolution with batch normalization, padded so that stride 1 keeps the size. Reads the
  /// layer before if `input` is empty.
  std::string add_conv_norm(const std::string& name, const std::string& norm,
                            const std::string& input, std::int64_t channels, std::int64_t kernel,
                            std::int64_t stride = 1,
                            CnnActivation activation = CnnActivation::relu);

  std::vector<CnnLayerConfig> take() && { return std::move(layers_); }

 private:
  std::vector<CnnLayerConfig> layers_;
};

/// The layers of a preset, with the names and sizes of torchvision.
/// Sources: LeCun et al., "Gradient-based learning applied to document recognition", 1998;
/// Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014; Szegedy et
/// al., "Rethinking the Inception architecture for computer vision", 2015 (without the auxiliary
/// classifier); He et al., "Deep residual learning for image recognition", 2015.
std::vector<CnnLayerConfig> preset_layers(const CnnConfig& config);

}  // namespace spillway
