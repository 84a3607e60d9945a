#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/peers/pipe.h"

namespace spillway {

/// Pipes of a host to others.
struct Connections {
  std::vector<std::unique_ptr<Pipe>> pipes;  ///< by number; null: this host, or not connected
  std::map<int, std::string> failures;       ///< why a host is not connected, by its number
};

/// Connects host `number` to all others of `size` hosts. `connect`: to one of them; throws Error if
/// that fails. It is called for all of them at the same time, so that none waits for another.
Connections connect_all(int number, int size,
                        const std::function<std::unique_ptr<Pipe>(int peer)>& connect);

}  // namespace spillway
