#include "core/peers/peer_link.h"

#include <algorithm>
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

/// Transfers that wait in the queue end too: the peer will not take them. The queue keeps at least
/// the new header, because the peer may have been told that one follows.
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

/// A posted take goes before the transfers that wait, because a transfer of the peer waits for it.
void PeerLink::enqueue(Outgoing outgoing) {
  auto place = outgoing_.end();
  if (outgoing.header.kind == Kind::ready) {
    place = std::ranges::find(outgoing_, Kind::transfer,
                              [](const Outgoing& waits) { return waits.header.kind; });
  }
  outgoing_.insert(place, std::move(outgoing));
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
  std::optional<Outgoing> before;  // its header is written; another follows
  while (std::optional<Outgoing> next = next_outgoing()) {
    bool works = write_header(*next);
    if (before) works = finish(*before, works);
    before.reset();
    if (works && next->header.is_followed != 0) {
      before = std::move(next);
    } else {
      finish(*next, works);
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
  next.header.is_followed = outgoing_.empty() ? 0 : 1;
  return next;
}

std::span<const std::byte> PeerLink::Outgoing::bytes() const {
  return header.kind == Kind::transfer ? send.bytes : std::span(message);
}

bool PeerLink::write_header(const Outgoing& outgoing) {
  const Header& header = outgoing.header;
  if (header.kind == Kind::transfer && header.length != outgoing.bytes().size()) {
    return false;  // the peer takes another length
  }
  return write(std::as_bytes(std::span(&header, 1)));
}

/// Writes the bytes whose header is written, if the link works. Returns whether it still does.
bool PeerLink::finish(Outgoing& outgoing, bool works) {
  works = works && write(outgoing.bytes());
  if (!works) break_off();
  if (outgoing.send.ended) {
    outgoing.send.ended(works ? Peers::Outcome::done : Peers::Outcome::lost);
  }
  return works;
}

bool PeerLink::write(std::span<const std::byte> bytes) {
  try {
    if (!bytes.empty()) pipe_->write(bytes);
    return true;
  } catch (const PipeBroken& broken) {
    note(broken);
    return false;
  }
}

void PeerLink::read_all() {
  std::deque<Incoming> announced;
  try {
    pipe_->expect(std::as_writable_bytes(std::span(&next_header_, 1)));
    while (read_next(announced)) {
    }
  } catch (const PipeBroken& broken) {
    note(broken);
  }
  break_off();
  for (const Incoming& incoming : announced) {
    if (incoming.take.ended) incoming.take.ended(Peers::Outcome::lost);
  }
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

/// Reads a header, and the bytes that come before the next one. `announced`: what has its header
/// here, but not its bytes. False if the peer sends what this host does not take.
bool PeerLink::read_next(std::deque<Incoming>& announced) {
  const auto next_header = std::as_writable_bytes(std::span(&next_header_, 1));
  pipe_->read(next_header);
  const Header header = next_header_;
  std::optional<Incoming> incoming = announced_by(header);
  if (!incoming) return false;
  announced.push_back(*std::move(incoming));
  const bool is_followed = header.is_followed != 0;
  const std::span<std::byte> bytes = announced.back().bytes();
  if (is_followed) pipe_->expect(next_header);
  if (!bytes.empty()) pipe_->expect(bytes);
  if (!is_followed) pipe_->expect(next_header);
  for (; announced.size() > (is_followed ? 1 : 0); announced.pop_front()) {
    finish(announced.front());
  }
  return true;
}

std::span<std::byte> PeerLink::Incoming::bytes() {
  return own.empty() ? take.bytes : std::span(own);
}

/// What a header announces; nothing if this host does not take it.
std::optional<PeerLink::Incoming> PeerLink::announced_by(const Header& header) {
  switch (header.kind) {
    case Kind::ready:
      note_ready(header);
      return Incoming();
    case Kind::epoch:
      note_epoch(header);
      return Incoming();
    case Kind::transfer:
      return transfer_of(header);
    case Kind::message:
      if (header.length > Peers::kMostMessage) return std::nullopt;
      return Incoming{.own = std::vector<std::byte>(header.length), .is_message = true};
  }
  return std::nullopt;
}

/// Reads its bytes.
void PeerLink::finish(Incoming& incoming) {
  if (!incoming.bytes().empty()) pipe_->read(incoming.bytes());
  if (incoming.is_message) listener_.heard(peer_, incoming.own);
  if (incoming.take.ended) incoming.take.ended(Peers::Outcome::done);
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
std::optional<PeerLink::Incoming> PeerLink::transfer_of(const Header& header) {
  const MutexLock lock(mutex_);
  if (is_stale()) return Incoming{.own = std::vector<std::byte>(header.length)};
  const auto found = takes_.find(header.tag);
  if (found == takes_.end() || found->second.bytes.size() != header.length) return std::nullopt;
  return Incoming{.take = std::move(takes_.extract(found).mapped())};
}

bool PeerLink::is_lost() {
  const MutexLock lock(mutex_);
  return !is_abandoned_;
}

}  // namespace spillway
