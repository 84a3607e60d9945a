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
    OpSpec op;
    op.kind = kind;
    op.vn = vn;
    const auto add_input = [&](int b) { op.inputs.push_back(b); };
    const auto add_output = [&](int b) { op.outputs.push_back(b); };
    for_each(kind, stage, vn, add_input, add_output);
    return op;
  }

  /// Calls `input(buffer)` for what the op reads and `output(buffer)` for what it makes.
  template <typename Input, typename Output>
  void for_each(OpKind kind, int stage, int vn, const Input& input, const Output& output) {
    if (kind == OpKind::backward) {
      backward(stage, vn, input, output);
    } else {
      forward(kind, stage, vn, input, output);
    }
  }

 private:
  template <typename Input, typename Output>
  void forward(OpKind kind, int s, int vn, const Input& input, const Output& output) {
    const bool evaluates = kind == OpKind::evaluate;
    const auto boundary = [&](EdgePart part) {
      return evaluates ? buffers_.eval_boundary(part, vn) : buffers_.boundary(part, vn);
    };
    for (int e : cut_.boundaries(s).in) {
      for (const Cut::Part& part : cut_.parts(e)) input(boundary({e, part.pieces}));
    }
    if (reads_batch_[at(s)]) input(evaluates ? buffers_.eval_batch(vn) : buffers_.batch(vn));
    for (int e : cut_.boundaries(s).out) {
      for (const Cut::Part& part : cut_.parts(e)) {
        if (part.shard == s) output(boundary({e, part.pieces}));
      }
    }
  }

  template <typename Input, typename Output>
  void backward(int s, int vn, const Input& input, const Output& output) {
    for (int e : cut_.boundaries(s).in) {
      for (const Cut::Part& part : cut_.parts(e)) input(buffers_.boundary({e, part.pieces}, vn));
      if (!has_gradient(model_.edges[at(e)])) continue;
      const int behind = cut_.next_reader(e, s);
      const bool is_summed_on = model_.edges[at(e)].reading_pieces == 1;
      if (behind >= 0 && is_summed_on) input(buffers_.gradient({e, {}}, behind, vn));
      for (LeafRange part : cut_.gradient_parts(e, s)) output(buffers_.gradient({e, part}, s, vn));
    }
    for (int e : cut_.boundaries(s).out) {
      if (has_gradient(model_.edges[at(e)])) add_gradients_for_makers(e, vn, input);
    }
    if (reads_batch_[at(s)]) input(buffers_.batch(vn));
  }

  /// The buffers of a boundary's gradient that its makers read: those of all stages whose pieces
  /// read it, or the one to which the first reader has added.
  template <typename Input>
  void add_gradients_for_makers(int edge, int vn, const Input& input) {
    for (int reader : cut_.readers(edge)) {
      for (LeafRange part : cut_.gradient_parts(edge, reader)) {
        input(buffers_.gradient({edge, part}, reader, vn));
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
