#pragma once

#include <string>

#include "scheduler/plan/program.h"

namespace spillway {

/// The names of ops and copies in traces and reports: "backward 3-5 vn 2" (layers, virtual node),
/// "weights", "update".
std::string span_name(const OpSpec& op);
std::string span_name(BufferKind kind);
std::string span_name(HostOpKind kind);

}  // namespace spillway
