#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "spillway/units.h"

namespace spillway {

/// Is told what other hosts do. Calls about one peer come one after the other. Each should return
/// quickly: what the peer sends next waits for it.
class PeersListener {
 public:
  virtual ~PeersListener() = default;
  /// A message of notify(). Those of a peer arrive in the order of its calls; between them and
  /// transfers there is no order.
  virtual void heard(int from, std::span<const std::byte> message) = 0;
  /// The connection to a peer broke, or a transfer has another length there than here. Called once,
  /// after its transfers have ended; nothing else comes from it. Not called after abandon(). The
  /// peer may notice only when this host abandons its peers. `why`: how this end of the connection
  /// failed; empty: it did not.
  virtual void lost(int peer, const std::string& why) = 0;
};

/// The hosts that train a trial together, each with a number from 0. Bytes go straight from host to
/// host; both ends know from the plan what travels, and a tag says which transfer it is. There is
/// no time limit: a transfer ends when it is done, when its peer is lost, or when this host begins
/// another epoch or abandons its peers. Each implementation passes
/// tests/conformance/peers_conformance.h. Thread-safe.
class Peers {
 public:
  static constexpr Bytes kMostMessage = 64_MiB;
  /// How a transfer ended: `done`; or the peer was lost or abandoned, or another epoch began.
  enum class Outcome : std::uint8_t { done, lost };
  /// Called once, by a thread of the peers or inside begin_epoch(). It should return quickly too.
  using Ended = std::function<void(Outcome)>;

  virtual ~Peers() = default;
  virtual int number() const = 0;  ///< of this host
  virtual int size() const = 0;    ///< number of hosts, this one included

  /// Begins to send `bytes` to another host. They stay as they are until `ended`. False, and
  /// `ended` is never called, if the peer is lost.
  virtual bool send(int to, std::uint64_t tag, std::span<const std::byte> bytes, Ended ended) = 0;
  /// Receives what the peer sends with this tag, which is as long as `bytes`; nobody reads or
  /// writes them until `ended`. A tag is in use once at a time. What a peer sends waits
  /// for its take, so a take that is posted early saves a round trip. False as for send().
  virtual bool take(int from, std::uint64_t tag, std::span<std::byte> bytes, Ended ended) = 0;
  /// Sends a copy of a message of at most kMostMessage. False as for send().
  virtual bool notify(int to, std::span<const std::byte> message) = 0;
  /// Ends all open transfers as lost, except those that have begun, which end by themselves.
  /// Later ones meet only those of peers in the same epoch. Epochs count up from 0; messages do not
  /// belong to any. Not from a callback.
  virtual void begin_epoch(std::uint64_t epoch) = 0;
  /// Breaks the connection to a peer, and ends transfers with it as lost. lost() is not called.
  virtual void drop(int peer) = 0;
  /// Ends all open transfers as lost, and makes the others lose this host. Afterwards nothing is
  /// called and no memory of a transfer is touched. Not from a callback. The destructor does it
  /// too.
  virtual void abandon() = 0;
};

}  // namespace spillway
