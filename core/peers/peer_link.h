#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "core/peers/peers.h"
#include "core/peers/pipe.h"

namespace spillway {

/// The connection to one other host: a reading and a writing thread. A header goes before the bytes
/// of each transfer and message. If more waits, the next header goes before them too, so that the
/// receiver can ask for the next bytes in time. A host says which takes it has posted, and a
/// transfer begins when the sender knows of its take; so neither thread ever waits for anything but
/// the pipe.
class PeerLink {
 public:
  /// `peer`: its number. The listener outlives the link, and may be called before this returns.
  PeerLink(int peer, std::unique_ptr<Pipe> pipe, PeersListener& listener);
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  /// As the functions of Peers.
  bool send(std::uint64_t tag, std::span<const std::byte> bytes, Peers::Ended ended);
  bool take(std::uint64_t tag, std::span<std::byte> bytes, Peers::Ended ended);
  bool notify(std::span<const std::byte> message);
  void begin_epoch(std::uint64_t epoch);
  /// Breaks the connection off.
  void begin_abandon();
  /// The same, and waits for the end of both threads.
  void abandon();

 private:
  /// Both hosts have the same byte order.
  struct Header {
    enum class Kind : std::uint64_t {
      ready,     ///< a take is posted; no bytes follow
      transfer,  ///< of a send whose take is posted
      message,
      epoch,  ///< `tag`: of what follows
    } kind = Kind::ready;
    std::uint64_t tag = 0;
    std::uint64_t length = 0;       ///< in bytes
    std::uint64_t is_followed = 0;  ///< 1: the next header comes before the bytes of this one
  };
  using Kind = Header::Kind;
  struct Send {
    std::span<const std::byte> bytes;
    Peers::Ended ended;
  };
  struct Take {
    std::span<std::byte> bytes;
    Peers::Ended ended;
  };
  struct Outgoing {
    Header header;
    Send send;                       ///< of a transfer
    std::vector<std::byte> message;  ///< the bytes of a message

    std::span<const std::byte> bytes() const;
  };
  /// What the peer has announced by a header.
  struct Incoming {
    Take take;  ///< of a transfer
    std::vector<std::byte>
        own;  ///< room for a message, or for a transfer that nobody takes any more
    bool is_message = false;

    std::span<std::byte> bytes();  ///< where its bytes go; empty: it has none
  };

  void enqueue(Outgoing outgoing) SPILLWAY_REQUIRES(mutex_);
  void break_off();
  bool is_stale() SPILLWAY_REQUIRES(mutex_) { return peer_epoch_ < epoch_; }
  template <typename Transfers>
  Transfers taken_from(Transfers PeerLink::*open);
  void write_all();
  std::optional<Outgoing> next_outgoing();
  bool write_header(const Outgoing& outgoing);
  bool finish(Outgoing& outgoing, bool works);
  bool write(std::span<const std::byte> bytes);
  void read_all();
  bool read_next(std::deque<Incoming>& announced);
  std::optional<Incoming> announced_by(const Header& header);
  std::optional<Incoming> transfer_of(const Header& header);
  void finish(Incoming& incoming);
  void note_ready(const Header& header);
  void note_epoch(const Header& header);
  bool is_lost();
  void note(const PipeBroken& broken);
  std::string why_lost();

  const int peer_;
  const std::unique_ptr<Pipe> pipe_;
  PeersListener& listener_;
  Header next_header_;  // of the reading thread
  Mutex mutex_;
  CondVar changed_;
  std::deque<Outgoing> outgoing_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Send> sends_ SPILLWAY_GUARDED_BY(mutex_);  // their takes are not posted
  std::map<std::uint64_t, Take> takes_ SPILLWAY_GUARDED_BY(mutex_);
  // Lengths of the peer's takes of its epoch that nothing was sent to.
  std::map<std::uint64_t, std::uint64_t> ready_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t epoch_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t peer_epoch_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::string why_ SPILLWAY_GUARDED_BY(mutex_);  // this end failed
  bool is_broken_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool is_abandoned_ SPILLWAY_GUARDED_BY(mutex_) = false;
  std::thread writer_, reader_;
};

}  // namespace spillway
