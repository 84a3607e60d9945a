#include "core/peers/peer_link.h"

#include <utility>

namespace spillway {

PeerLink::PeerLink(int peer, std::unique_ptr<Pipe> pipe, PeersListener& listener)
    : peer_(peer), pipe_(std::move(pipe)), listener_(listener) {
  writer_ = std::thread([this] { write_all(); });
  reader_ = std::thread([this] { read_all(); });
}

PeerLink::~PeerLink() { abandon(); }

bool PeerLink::send(std::uint64_t tag, std::span<const std::byte> bytes, Peers::Ended ended) {
  const MutexLock lock(mutex_);
  if (is_broken_) return false;
  const auto length = peer_epoch_ == epoch_ ? ready_.extract(tag) : decltype(ready_)::node_type();
  if (length) {
    enqueue({{Kind::transfer, tag, length.mapped()}, {bytes, std::move(ended)}, {}});
  } else {
    sends_.emplace(tag, Send{bytes, std::move(ended)});
  }
  return true;
}

bool PeerLink::take(std::uint64_t tag, std::span<std::byte> bytes, Peers::Ended ended) {
  const MutexLock lock(mutex_);
  if (is_broken_) return false;
  enqueue({{Kind::ready, tag, bytes.size()}, {}, {}});
  takes_.emplace(tag, Take{bytes, std::move(ended)});
  return true;
}

bool PeerLink::notify(std::span<const std::byte> message) {
  const MutexLock lock(mutex_);
  if (is_broken_) return false;
  enqueue({{Kind::message, 0, message.size()}, {}, {message.begin(), message.end()}});
  return true;
}

/// Transfers that wait in the queue end too: the peer will not take them.
void PeerLink::begin_epoch(std::uint64_t epoch) {
  std::vector<Peers::Ended> ends;
  {
    const MutexLock lock(mutex_);
    if (is_broken_) return;  // its threads end them
    epoch_ = epoch;
    for (auto& [tag, send] : std::exchange(sends_, {})) ends.push_back(std::move(send.ended));
    for (auto& [tag, take] : std::exchange(takes_, {})) ends.push_back(std::move(take.ended));
    std::erase_if(outgoing_, [&](Outgoing& waits) {
      if (waits.send.ended) ends.push_back(std::move(waits.send.ended));
      return waits.header.kind != Kind::message;
    });
    if (is_stale()) ready_.clear();
    enqueue({{Kind::epoch, epoch, 0}, {}, {}});
  }
  for (const Peers::Ended& ended : ends) ended(Peers::Outcome::lost);
}

void PeerLink::begin_abandon() {
  {
    const MutexLock lock(mutex_);
    is_abandoned_ = true;
  }
  break_off();
}

void PeerLink::abandon() {
  begin_abandon();
  if (writer_.joinable()) writer_.join();
  if (reader_.joinable()) reader_.join();
}

void PeerLink::enqueue(Outgoing outgoing) {
  outgoing_.push_back(std::move(outgoing));
  changed_.notify_all();
}

/// From here on both threads come to their end.
void PeerLink::break_off() {
  {
    const MutexLock lock(mutex_);
    is_broken_ = true;
    changed_.notify_all();
  }
  pipe_->close();
}

/// The transfers that are still open.
template <typename Transfers>
Transfers PeerLink::taken_from(Transfers PeerLink::*open) {
  const MutexLock lock(mutex_);
  return std::exchange(this->*open, {});
}

void PeerLink::write_all() {
  while (std::optional<Outgoing> next = next_outgoing()) {
    const bool is_written = write(*next);
    if (!is_written) break_off();
    if (next->send.ended) {
      next->send.ended(is_written ? Peers::Outcome::done : Peers::Outcome::lost);
    }
  }
  for (const auto& [tag, send] : taken_from(&PeerLink::sends_)) send.ended(Peers::Outcome::lost);
}

/// Waits for one. Nothing if the link is broken and none is left.
std::optional<PeerLink::Outgoing> PeerLink::next_outgoing() {
  const MutexLock lock(mutex_);
  changed_.wait(mutex_,
                [this]() SPILLWAY_REQUIRES(mutex_) { return is_broken_ || !outgoing_.empty(); });
  if (outgoing_.empty()) return std::nullopt;
  Outgoing next = std::move(outgoing_.front());
  outgoing_.pop_front();
  return next;
}

bool PeerLink::write(const Outgoing& outgoing) {
  const bool is_transfer = outgoing.header.kind == Kind::transfer;
  const auto bytes = is_transfer ? outgoing.send.bytes : std::span(outgoing.message);
  if (is_transfer && outgoing.header.length != bytes.size()) {
    return false;  // the peer takes another length
  }
  try {
    pipe_->write(std::as_bytes(std::span(&outgoing.header, 1)));
    if (!bytes.empty()) pipe_->write(bytes);
    return true;
  } catch (const PipeBroken& broken) {
    note(broken);
    return false;
  }
}

void PeerLink::read_all() {
  try {
    while (read_one()) {
    }
  } catch (const PipeBroken& broken) {
    note(broken);
  }
  break_off();
  for (const auto& [tag, take] : taken_from(&PeerLink::takes_)) take.ended(Peers::Outcome::lost);
  if (is_lost()) listener_.lost(peer_, why_lost());
}

/// Only if this end fails. Before the other thread hears that the pipe is closed.
void PeerLink::note(const PipeBroken& broken) {
  if (dynamic_cast<const PipeFailed*>(&broken) == nullptr) return;
  const MutexLock lock(mutex_);
  if (why_.empty()) why_ = broken.what();
}

std::string PeerLink::why_lost() {
  const MutexLock lock(mutex_);
  return why_;
}

/// False if the peer sends what this host does not take.
bool PeerLink::read_one() {
  Header header;
  pipe_->read(std::as_writable_bytes(std::span(&header, 1)));
  switch (header.kind) {
    case Kind::ready:
      note_ready(header);
      return true;
    case Kind::epoch:
      note_epoch(header);
      return true;
    case Kind::transfer:
      return read_transfer(header);
    case Kind::message:
      return read_message(header);
  }
  return false;
}

void PeerLink::note_ready(const Header& header) {
  const MutexLock lock(mutex_);
  if (is_broken_ || is_stale()) return;
  const bool is_same = peer_epoch_ == epoch_;  // else this host is behind
  if (auto send = is_same ? sends_.extract(header.tag) : decltype(sends_)::node_type()) {
    enqueue({{Kind::transfer, header.tag, header.length}, std::move(send.mapped()), {}});
  } else {
    ready_.emplace(header.tag, header.length);
  }
}

void PeerLink::note_epoch(const Header& header) {
  const MutexLock lock(mutex_);
  peer_epoch_ = header.tag;
  ready_.clear();  // of its epoch before
}

/// The take of a transfer of an earlier epoch has ended: its bytes go nowhere.
bool PeerLink::read_transfer(const Header& header) {
  std::optional<Take> take;
  std::vector<std::byte> nowhere;
  {
    const MutexLock lock(mutex_);
    if (is_stale()) {
      nowhere.resize(header.length);
      take.emplace(nowhere, [](Peers::Outcome) {});
    } else {
      take = take_of(header);
    }
  }
  if (!take) return false;
  try {
    if (header.length > 0) pipe_->read(take->bytes);
  } catch (const PipeBroken& broken) {
    note(broken);
    take->ended(Peers::Outcome::lost);
    return false;
  }
  take->ended(Peers::Outcome::done);
  return true;
}

std::optional<PeerLink::Take> PeerLink::take_of(const Header& header) {
  const auto found = takes_.find(header.tag);
  if (found == takes_.end() || found->second.bytes.size() != header.length) return std::nullopt;
  return std::move(takes_.extract(found).mapped());
}

bool PeerLink::read_message(const Header& header) {
  if (header.length > Peers::kMostMessage) return false;
  std::vector<std::byte> message(header.length);
  if (!message.empty()) pipe_->read(message);
  listener_.heard(peer_, message);
  return true;
}

bool PeerLink::is_lost() {
  const MutexLock lock(mutex_);
  return !is_abandoned_;
}

}  // namespace spillway
