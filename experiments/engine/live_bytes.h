#pragma once

#include <cstddef>

namespace spillway::experiments {

/// Bytes allocated with `new` and not freed. A program that links this counts all of them.
std::size_t live_bytes();

}  // namespace spillway::experiments
