#include "scheduler/plan/stage_ops.h"

namespace spillway {

OpSpec StageOps::make(OpKind kind, int stage, int vn) {
  OpSpec op = kind == OpKind::backward ? backward(stage, vn) : forward(kind, stage, vn);
  op.kind = kind;
  op.vn = vn;
  return op;
}

OpSpec StageOps::forward(OpKind kind, int s, int vn) {
  const bool evaluates = kind == OpKind::evaluate;
  const auto boundary = [&](EdgePart part) {
    return evaluates ? buffers_.eval_boundary(part, vn) : buffers_.boundary(part, vn);
  };
  const Layout& layout = buffers_.layout();
  OpSpec op;
  for (int e : cut_.boundaries(s).in) {
    for (const Cut::Part& part : cut_.parts(e)) op.inputs.push_back(boundary({e, part.pieces}));
  }
  if (needs_[at(s)].reads_batch()) {
    op.inputs.push_back(evaluates ? layout.eval_batch[at(vn - layout.first_eval_vn)]
                                  : layout.batch[at(vn - layout.first_vn)]);
  }
  for (EdgePart part : made_by(s)) op.outputs.push_back(boundary(part));
  return op;
}

OpSpec StageOps::backward(int s, int vn) {
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
    if (!has_gradient(model_.edges[at(e)])) continue;
    for (int buffer : gradients_for_makers(e, vn)) op.inputs.push_back(buffer);
  }
  if (needs_[at(s)].reads_batch()) {
    const Layout& layout = buffers_.layout();
    op.inputs.push_back(layout.batch[at(vn - layout.first_vn)]);
  }
  return op;
}

/// The parts of boundaries that a stage makes for later ones.
std::vector<EdgePart> StageOps::made_by(int stage) const {
  std::vector<EdgePart> made;
  for (int e : cut_.boundaries(stage).out) {
    for (const Cut::Part& part : cut_.parts(e)) {
      if (part.shard == stage) made.push_back({e, part.pieces});
    }
  }
  return made;
}

/// The buffers of a boundary's gradient that its makers read: those of all stages whose pieces read
/// it, or the one to which the first reader has added.
std::vector<int> StageOps::gradients_for_makers(int edge, int vn) {
  std::vector<int> buffers;
  for (int reader : cut_.readers(edge)) {
    for (LeafRange part : cut_.gradient_parts(edge, reader)) {
      buffers.push_back(buffers_.gradient({edge, part}, reader, vn));
    }
    if (model_.edges[at(edge)].reading_pieces == 1) break;
  }
  return buffers;
}

}  // namespace spillway
