#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "trainer/c10d/board.h"

namespace spillway {

/// Hosts that start together.
struct Meeting {
  /// A name that only these hosts get: torchrun may keep its store, with what lost hosts wrote,
  /// when it starts hosts again.
  std::string name;
  std::vector<int> hosts;  ///< ascending, 0 first
};

/// Host 0 draws the name and confirms it to each of the others, so that none takes an old one. It
/// waits `limit` for all; then `least` are enough. Throws Error if fewer have come.
Meeting meet(Board& board, int number, int size, int least, std::chrono::milliseconds limit);

}  // namespace spillway
