#pragma once

#include <utility>
#include <vector>

#include "scheduler/plan/cut.h"

namespace spillway {

/// What the ops of one virtual node read and make, stage by stage.
///
/// `Buffers` numbers them: boundary(part, vn), eval_boundary(part, vn), gradient(part, shard, vn),
/// batch(vn), eval_batch(vn); see LayoutBuilder.
template <typename Buffers>
class StageOps {
 public:
  /// `reads_batch`: by stage. Model, cut and buffers outlive it.
  StageOps(const ModelSpec& model, const Cut& cut, std::vector<bool> reads_batch, Buffers& buffers)
      : model_(model), cut_(cut), reads_batch_(std::move(reads_batch)), buffers_(buffers) {}

  /// Only the buffers of the op are set, the kind, and the virtual node.
  OpSpec make(OpKind kind, int stage, int vn) {
    OpSpec op = kind == OpKind::backward ? backward(stage, vn) : forward(kind, stage, vn);
    op.kind = kind;
    op.vn = vn;
    return op;
  }

 private:
  OpSpec forward(OpKind kind, int s, int vn) {
    const bool evaluates = kind == OpKind::evaluate;
    const auto boundary = [&](EdgePart part) {
      return evaluates ? buffers_.eval_boundary(part, vn) : buffers_.boundary(part, vn);
    };
    OpSpec op;
    for (int e : cut_.boundaries(s).in) {
      for (const Cut::Part& part : cut_.parts(e)) op.inputs.push_back(boundary({e, part.pieces}));
    }
    if (reads_batch_[at(s)]) {
      op.inputs.push_back(evaluates ? buffers_.eval_batch(vn) : buffers_.batch(vn));
    }
    for (int e : cut_.boundaries(s).out) {
      for (const Cut::Part& part : cut_.parts(e)) {
        if (part.shard == s) op.outputs.push_back(boundary({e, part.pieces}));
      }
    }
    return op;
  }

  OpSpec backward(int s, int vn) {
    OpSpec op;
    for (int e : cut_.boundaries(s).in) {
      for (const Cut::Part& part : cut_.parts(e)) {
        op.inputs.push_back(buffers_.boundary({e, part.pieces}, vn));
      }
      if (!has_gradient(model_.edges[at(e)])) continue;
      const int behind = cut_.next_reader(e, s);
      const bool is_summed_on = model_.edges[at(e)].reading_pieces == 1;
      if (behind >= 0 && is_summed_on) op.inputs.push_back(buffers_.gradient({e, {}}, behind, vn));
      for (LeafRange part : cut_.gradient_parts(e, s)) {
        op.outputs.push_back(buffers_.gradient({e, part}, s, vn));
      }
    }
    for (int e : cut_.boundaries(s).out) {
      if (has_gradient(model_.edges[at(e)])) add_gradients_for_makers(e, vn, op.inputs);
    }
    if (reads_batch_[at(s)]) op.inputs.push_back(buffers_.batch(vn));
    return op;
  }

  /// The buffers of a boundary's gradient that its makers read: those of all stages whose pieces
  /// read it, or the one to which the first reader has added.
  void add_gradients_for_makers(int edge, int vn, std::vector<int>& inputs) {
    for (int reader : cut_.readers(edge)) {
      for (LeafRange part : cut_.gradient_parts(edge, reader)) {
        inputs.push_back(buffers_.gradient({edge, part}, reader, vn));
      }
      if (model_.edges[at(edge)].reading_pieces == 1) break;
    }
  }

  const ModelSpec& model_;
  const Cut& cut_;
  const std::vector<bool> reads_batch_;
  Buffers& buffers_;
};

}  // namespace spillway
