#pragma once

#include <chrono>
#include <string>

#include "trainer/c10d/board.h"

namespace spillway {

/// A name that all hosts which start together get, and no others: torchrun may keep its store, with
/// what lost hosts wrote, when it starts hosts again. Host 0 draws the name and confirms it to each
/// of the others, so that none takes an old one. Throws Error if not all have come within `limit`.
std::string name_of_meeting(Board& board, int number, int size, std::chrono::milliseconds limit);

}  // namespace spillway
