#pragma once

#include "scheduler/plan/layout.h"
#include "scheduler/plan/need.h"

namespace spillway {

/// What the ops of one virtual node read and make, stage by stage. Numbers the buffers of
/// boundaries and gradients as it goes.
class StageOps {
 public:
  /// `needs`: by stage. All arguments outlive it.
  StageOps(const ModelSpec& model, const Cut& cut, const std::vector<RangeNeed>& needs,
           LayoutBuilder& buffers)
      : model_(model), cut_(cut), needs_(needs), buffers_(buffers) {}

  /// Only the buffers of the op are set, and the kind.
  OpSpec make(OpKind kind, int stage, int vn);

 private:
  OpSpec forward(OpKind kind, int stage, int vn);
  OpSpec backward(int stage, int vn);
  std::vector<EdgePart> made_by(int stage) const;
  std::vector<int> gradients_for_makers(int edge, int vn);

  const ModelSpec& model_;
  const Cut& cut_;
  const std::vector<RangeNeed>& needs_;
  LayoutBuilder& buffers_;
};

}  // namespace spillway
