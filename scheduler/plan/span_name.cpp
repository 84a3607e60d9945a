#include "scheduler/plan/span_name.h"

#include <fmt/format.h>

namespace spillway {

std::string span_name(const OpSpec& op) {
  const char* kind = op.kind == OpKind::forward    ? "forward"
                     : op.kind == OpKind::backward ? "backward"
                                                   : "evaluate";
  return fmt::format("{} {}-{} vn {}", kind, op.layers.begin, op.layers.end - 1, op.vn);
}

std::string span_name(BufferKind kind) {
  switch (kind) {
    case BufferKind::weights:
      return "weights";
    case BufferKind::sum:
      return "gradient sum";
    case BufferKind::boundary:
      return "boundary";
    case BufferKind::gradient:
      return "boundary gradient";
    case BufferKind::batch:
      return "batch";
  }
  return "?";
}

std::string span_name(HostOpKind kind) {
  switch (kind) {
    case HostOpKind::load:
      return "load";
    case HostOpKind::reduce:
      return "reduce";
    case HostOpKind::commit:
      return "commit";
    case HostOpKind::update:
      return "update";
    case HostOpKind::finish_evaluation:
      return "finish evaluation";
    case HostOpKind::finish:
      return "finish";
  }
  return "?";
}

}  // namespace spillway
