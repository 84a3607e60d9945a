#pragma once

#include <stdexcept>

namespace spillway::testing {

/// Returns the `Expected` that `call` throws; anything else ends the test as a failure.
template <typename Expected, typename Call>
Expected thrown(const Call& call) {
  try {
    call();
  } catch (const Expected& error) {
    return error;
  }
  throw std::logic_error("nothing was thrown");
}

}  // namespace spillway::testing
