#pragma once

#include <exception>
#include <string>

namespace spillway {

/// The message of an exception, without LibTorch's stack trace. Adds a remedy if LibTorch refuses
/// an operation because its bits would vary, or a batch norm of one value.
std::string reason_of(const std::exception& error);

}  // namespace spillway
