#pragma once

#include <memory>
#include <string>
#include <vector>

#include "spillway/model.h"

namespace spillway {

/// Puts the spec and the layers of a model together, front to back. Numbers that it returns are
/// positions in the ModelSpec.
class ModelBuilder {
 public:
  explicit ModelBuilder(std::string family) : model_(std::make_unique<Model>()) {
    model_->spec.family = std::move(family);
  }

  int add_param(ParamSpec param);
  /// "NAME.weight" [out, in], normal, and "NAME.bias" [out], zeros without decay, both appended to
  /// `params`.
  void add_linear(std::vector<int>& params, const std::string& name, const Dim& out, const Dim& in,
                  double stddev);
  /// An edge that is part of the batch.
  int add_batch(std::string name, TensorSpec tensor);
  /// A layer behind the last one. Returns its output edge, which carries its name.
  int add_layer(LayerSpec spec, std::unique_ptr<Layer> layer, TensorSpec output);
  /// The last layer.
  void add_loss(LayerSpec spec, std::unique_ptr<Layer> layer);

  ModelSpec& spec() { return model_->spec; }
  /// Throws as ModelSpec::validate().
  std::unique_ptr<Model> build() &&;

 private:
  std::unique_ptr<Model> model_;
};

}  // namespace spillway
