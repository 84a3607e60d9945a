#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "core/peers/framed_peers.h"
#include "spillway/session_config.h"
#include "trainer/c10d/rendezvous.h"

namespace spillway {

/// This host among those that train together (HostsConfig): what hosts agree on goes through the
/// store at the endpoint, bytes go from host to host. Thread-safe.
class Hosts final : private PeersListener {
 public:
  /// Meets the others. Throws ConfigError (`hosts.…`), Error.
  explicit Hosts(const HostsConfig& config);
  /// Waits until all others are ready to part, too, unless training together has ended before.
  ~Hosts() override;

  int number() const { return config_.number; }
  int size() const { return config_.size; }
  Peers& peers() { return *peers_; }

  /// Writes a value that every host of this start can read. Throws Error.
  void tell(const std::string& name, const std::string& value);
  /// Waits for a value that some host writes. Throws Error after the time limit, or if training
  /// together has ended.
  std::string hear(const std::string& name, int from);

  /// Calls `what` once, when training together ends: a host is lost, or this one leaves. On any
  /// thread, and before a transfer ends for that reason. Empty: calls nothing.
  void when_ended(std::function<void()> what);
  /// A transfer has ended because this host is lost.
  void note_lost(int host);
  /// Ends training together: the others lose this host. Not on a thread of the peers. `why` is not
  /// empty.
  void leave(const std::string& why);
  /// Ends all transfers, once training together has ended. Not on a thread of the peers.
  void abandon();
  /// Why training together has ended; empty: it has not.
  std::string problem() const;

 private:
  using Clock = std::chrono::steady_clock;

  void heard(int from, std::span<const std::byte> message) override;
  void lost(int host) override { note_lost(host); }
  void end(const std::string& why) SPILLWAY_REQUIRES(mutex_);
  void notify_all(std::byte message);
  void part();
  void show_life(const std::stop_token& stop);

  const HostsConfig config_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::string why_ SPILLWAY_GUARDED_BY(mutex_);        ///< training together has ended
  std::set<int> parting_ SPILLWAY_GUARDED_BY(mutex_);  ///< hosts that are done
  std::vector<Clock::time_point> last_heard_ SPILLWAY_GUARDED_BY(mutex_);  ///< by host
  std::function<void()> when_ended_ SPILLWAY_GUARDED_BY(mutex_);
  std::optional<Rendezvous> rendezvous_;
  std::string prefix_;  ///< of this meeting's keys
  Mutex abandoning_;
  std::unique_ptr<FramedPeers> peers_;
  std::jthread life_;
};

}  // namespace spillway
