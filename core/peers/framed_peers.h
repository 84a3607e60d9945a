#pragma once

#include <memory>
#include <vector>

#include "core/peers/peer_link.h"
#include "core/peers/peers.h"
#include "core/peers/pipe.h"

namespace spillway {

/// Peers over a pipe to each of them.
class FramedPeers final : public Peers {
 public:
  /// `pipes`: to each host by its number; null for this one, `number`, and for those that are lost
  /// from the start. The listener outlives the peers, and may hear of them before this returns.
  FramedPeers(int number, std::vector<std::unique_ptr<Pipe>> pipes, PeersListener& listener);
  ~FramedPeers() override;

  int number() const override { return number_; }
  int size() const override { return static_cast<int>(links_.size()); }
  bool send(int to, std::uint64_t tag, std::span<const std::byte> bytes, Ended ended) override;
  bool take(int from, std::uint64_t tag, std::span<std::byte> bytes, Ended ended) override;
  bool notify(int to, std::span<const std::byte> message) override;
  void begin_epoch(std::uint64_t epoch) override;
  void drop(int peer) override;
  void abandon() override;

 private:
  PeerLink* link(int peer) const;

  const int number_;
  std::vector<std::unique_ptr<PeerLink>> links_;  // by number; null: there is no pipe
};

}  // namespace spillway
