#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/sealing/token.h"
#include "trainer/c10d/pause.h"
#include "trainer/c10d/rendezvous.h"

namespace spillway {

/// Texts that hosts write for each other under names, in the store of a rendezvous. With a token
/// they are sealed. Throws std::exception if the store does not answer. Thread-safe.
class Board {
 public:
  /// The rendezvous outlives the board.
  Board(const Rendezvous& rendezvous, const std::optional<Token>& token);

  const Endpoint& endpoint() const { return rendezvous_.endpoint(); }
  void write(const std::string& name, const std::string& text);
  /// Nothing if nobody has written it. Throws Error if a host with another token has, or one
  /// without.
  std::optional<std::string> read(const std::string& name);
  /// Adds to a number, which is 0 at first and is not sealed, and returns it.
  std::int64_t count(const std::string& name, std::int64_t more);
  /// Waits until somebody has written it. `give_up`: called meanwhile; throws if it is no use to
  /// wait.
  template <typename GiveUp>
  std::string wait_for(const std::string& name, const GiveUp& give_up) {
    for (Pause pause;; pause()) {
      if (auto text = read(name)) return *std::move(text);
      give_up();
    }
  }

 private:
  const Rendezvous& rendezvous_;
  std::optional<Key> key_;
};

}  // namespace spillway
