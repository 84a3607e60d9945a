#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "spillway/model.h"

namespace spillway {

/// Assembles the spec and the layers of a model, front to back. The numbers that it returns are
/// positions in the ModelSpec.
class ModelBuilder {
 public:
  /// Starts an empty model; `family` becomes ModelSpec::family.
  explicit ModelBuilder(std::string family) : model_(std::make_unique<Model>()) {
    model_->spec.family = std::move(family);
  }

  /// Appends a parameter and returns its number.
  int add_param(ParamSpec param);
  /// Appends "NAME/PIECE", the part of a parameter that a piece of a layer holds if its first
  /// dimension is divided; the parameter itself if `pieces` is 1. With `blocks`, the first
  /// dimension is as many blocks of equal size, such as the gates of an LSTM, and a piece has a
  /// part of each. Returns its number.
  int add_piece(ParamSpec whole, int piece, int pieces, std::int64_t blocks = 1);
  /// Appends "NAME.weight" [out, in], normal, and "NAME.bias" [out], zeros without decay, or a
  /// piece of each. Adds both numbers to `params`.
  void add_linear(std::vector<int>& params, const std::string& name, const Dim& out, const Dim& in,
                  double stddev, int piece = 0, int pieces = 1);
  /// Appends "NAME/PIECE", the part `stored` of tensor NAME, with dimensions `dims`: of a matrix,
  /// normal; of a bias, zeros without decay. Returns its number.
  int add_part(StoredSlice stored, std::vector<Dim> dims, int piece, double stddev);
  /// Appends an edge that is part of the batch and returns its number.
  int add_batch(std::string name, TensorSpec tensor);
  /// Appends a layer. Returns the number of its output edge, which has the layer's name.
  int add_layer(LayerSpec spec, std::unique_ptr<Layer> layer, TensorSpec output);
  /// Appends a piece of a divided layer (LayerSpec::piece). Returns the number of the edge whose
  /// terms all its pieces make; the first piece decides its name and its type.
  int add_term(LayerSpec spec, std::unique_ptr<Layer> layer, EdgeSpec sum);
  /// Appends the loss, the last layer.
  void add_loss(LayerSpec spec, std::unique_ptr<Layer> layer);

  /// The spec so far.
  ModelSpec& spec() { return model_->spec; }
  /// The model. Throws like ModelSpec::validate().
  std::unique_ptr<Model> build() &&;

 private:
  std::unique_ptr<Model> model_;
};

}  // namespace spillway
