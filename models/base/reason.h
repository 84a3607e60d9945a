#pragma once

#include <exception>
#include <string>

namespace spillway {

/// What an exception says, without the stack that LibTorch's end with. For an operation that
/// LibTorch refuses because its bits would vary, and for a batch norm of one value, also what to
/// do.
std::string reason_of(const std::exception& error);

}  // namespace spillway
