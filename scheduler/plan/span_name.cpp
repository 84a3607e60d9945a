#include "scheduler/plan/span_name.h"

#include <fmt/format.h>

namespace spillway {

std::string span_name(const OpSpec& op) {
  return fmt::format("{} {}-{} vn {}", to_string(op.kind), op.layers.begin, op.layers.end - 1,
                     op.vn);
}

}  // namespace spillway
