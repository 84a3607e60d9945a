#include "core/peers/framed_peers.h"

#include <cassert>
#include <utility>

namespace spillway {

FramedPeers::FramedPeers(int number, std::vector<std::unique_ptr<Pipe>> pipes,
                         PeersListener& listener)
    : number_(number) {
  for (std::size_t peer = 0; peer < pipes.size(); ++peer) {
    links_.push_back(pipes[peer] ? std::make_unique<PeerLink>(static_cast<int>(peer),
                                                              std::move(pipes[peer]), listener)
                                 : nullptr);
  }
}

FramedPeers::~FramedPeers() { abandon(); }

/// Null if there is no pipe.
PeerLink* FramedPeers::link(int peer) const {
  assert(peer >= 0 && peer < size() && peer != number_);
  return links_[static_cast<std::size_t>(peer)].get();
}

bool FramedPeers::send(int to, std::uint64_t tag, std::span<const std::byte> bytes, Ended ended) {
  PeerLink* const there = link(to);
  return there && there->send(tag, bytes, std::move(ended));
}

bool FramedPeers::take(int from, std::uint64_t tag, std::span<std::byte> bytes, Ended ended) {
  PeerLink* const there = link(from);
  return there && there->take(tag, bytes, std::move(ended));
}

bool FramedPeers::notify(int to, std::span<const std::byte> message) {
  assert(message.size() <= kMostMessage);
  PeerLink* const there = link(to);
  return there && there->notify(message);
}

void FramedPeers::drop(int peer) {
  if (PeerLink* const there = link(peer)) there->begin_abandon();
}

void FramedPeers::begin_epoch(std::uint64_t epoch) {
  for (const auto& link : links_) {
    if (link) link->begin_epoch(epoch);
  }
}

void FramedPeers::abandon() {
  for (const auto& link : links_) {
    if (link) link->begin_abandon();
  }
  for (const auto& link : links_) {
    if (link) link->abandon();
  }
}

}  // namespace spillway
