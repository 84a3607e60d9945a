#include "models/text/vocabulary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>

namespace spillway {
namespace {

using Tensors = std::span<const at::Tensor>;

/// Tokens as rows of a piece of the embedding.
struct Rows {
  at::Tensor index;   // into the piece; any of its rows for a token of another piece
  at::Tensor is_own;  // whether the token is one of the piece
};

Rows rows_of(const at::Tensor& tokens, std::int64_t first, std::int64_t size) {
  const at::Tensor index = tokens - first;
  return {index.clamp(0, size - 1), (index >= 0).logical_and(index < size)};
}

class EmbedPiece final : public Layer {
 public:
  EmbedPiece(std::int64_t first, const Positions& inputs) : first_(first), inputs_(inputs) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext&) const override {
    const Rows rows = rows_of(inputs_.of(inputs[0]), first_, params[0].size(0));
    const at::Tensor found = at::embedding(params[0], rows.index).to(at::kFloat);
    return {.output = found * rows.is_own.unsqueeze(-1)};
  }

 private:
  std::int64_t first_;
  Positions inputs_;
};

class HeadPiece final : public Layer {
 public:
  HeadPiece(std::int64_t first, const Positions& targets) : first_(first), targets_(targets) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext&) const override {
    const at::Tensor bias = params.size() > 1 ? params[1] : at::Tensor();
    const at::Tensor logits = at::linear(inputs[0], params[0], bias).to(at::kFloat);  // [B, P, V']
    const Rows rows = rows_of(targets_.of(inputs[1]), first_, params[0].size(0));
    const at::Tensor of_target = logits.gather(2, rows.index.unsqueeze(-1)).squeeze(-1);
    return {.output = at::stack({at::logsumexp(logits, 2), of_target * rows.is_own}, 2)};
  }

 private:
  std::int64_t first_;
  Positions targets_;
};

/// Source: Shoeybi et al., "Megatron-LM", 2019, section 3, for losses over a divided vocabulary.
class VocabularyLoss final : public Layer {
 public:
  LayerResult forward(Tensors inputs, Tensors, const LayerContext&) const override {
    const at::Tensor pieces = at::stack(at::TensorList(inputs.data(), inputs.size()));
    const at::Tensor sums = at::logsumexp(pieces.select(3, 0), 0);  // [B, P]
    const at::Tensor of_targets = pieces.select(3, 1).sum(0);
    return {.output = (sums - of_targets).sum(), .weight = static_cast<double>(sums.numel())};
  }
};

}  // namespace

std::unique_ptr<Layer> make_embed_piece(std::int64_t first, const Positions& inputs) {
  return std::make_unique<EmbedPiece>(first, inputs);
}

std::unique_ptr<Layer> make_head_piece(std::int64_t first, const Positions& targets) {
  return std::make_unique<HeadPiece>(first, targets);
}

std::unique_ptr<Layer> make_vocabulary_loss() { return std::make_unique<VocabularyLoss>(); }

}  // namespace spillway
