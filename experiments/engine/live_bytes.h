#pragma once

#include <cstddef>

namespace spillway::experiments {

/// Bytes that `new` has handed out and not got back. A program that links this counts all of them.
std::size_t live_bytes();

}  // namespace spillway::experiments
