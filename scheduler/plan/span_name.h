#pragma once

#include <fmt/format.h>

#include <array>
#include <string>

#include "scheduler/plan/program.h"
#include "spillway/choices.h"

namespace spillway {

template <>
inline constexpr std::array kNames<OpKind>{"forward", "backward", "evaluate"};
template <>
inline constexpr std::array kNames<BufferKind>{"weights",           "gradient sum", "boundary",
                                               "boundary gradient", "batch",        "graph"};
template <>
inline constexpr std::array kNames<HostOpKind>{
    "load",   "reduce", "commit",   "update",      "finish evaluation",
    "finish", "add",    "exchange", "update part", "take weights"};

/// The name of an op in traces and reports: "backward 3-5 vn 2" (layers, virtual node).
inline std::string span_name(const OpSpec& op) {
  return fmt::format("{} {}-{} vn {}", to_string(op.kind), op.layers.begin, op.layers.end - 1,
                     op.vn);
}

}  // namespace spillway
