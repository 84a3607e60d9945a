#pragma once

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "core/base/mutex.h"
#include "core/peers/framed_peers.h"
#include "spillway/session_config.h"
#include "trainer/c10d/rendezvous.h"

namespace spillway {

/// This host among those that train together (HostsConfig): what hosts agree on goes through the
/// store at the endpoint, bytes go from host to host.
class Hosts final : private PeersListener {
 public:
  /// Meets the others. Throws ConfigError (`hosts.…`), Error.
  explicit Hosts(const HostsConfig& config);
  /// Waits until all others are ready to part, too, unless some host is lost or has given up.
  ~Hosts() override;

  int number() const { return config_.number; }
  int size() const { return config_.size; }
  Peers& peers() { return *peers_; }

  /// Writes a value that every host can read. Throws Error.
  void tell(const std::string& name, const std::string& value);
  /// Waits for a value that some host writes. Throws Error after the time limit, or if a host is
  /// lost.
  std::string hear(const std::string& name, int from);

  /// Calls `what` once, as soon as a host is lost, on any thread; empty: nothing.
  void when_lost(std::function<void()> what);
  /// A transfer has ended because this host is lost. Before this returns, when_lost() is done.
  void note_lost(int host);
  /// Ends all transfers; the others lose this host. Not on a thread of the peers. `why`: for
  /// problem(), unless a host was lost before.
  void give_up(const std::string& why);
  /// Why training together has ended; empty: it has not.
  std::string problem() const;

 private:
  void heard(int from, std::span<const std::byte> message) override;
  void lost(int host) override { note_lost(host); }
  void part();

  const HostsConfig config_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<int> lost_ SPILLWAY_GUARDED_BY(mutex_);
  bool gave_up_ SPILLWAY_GUARDED_BY(mutex_) = false;
  std::string why_ SPILLWAY_GUARDED_BY(mutex_);        ///< it gave up
  std::set<int> parting_ SPILLWAY_GUARDED_BY(mutex_);  ///< hosts that are done
  std::function<void()> when_lost_ SPILLWAY_GUARDED_BY(mutex_);
  std::optional<Rendezvous> rendezvous_;
  std::unique_ptr<FramedPeers> peers_;
};

}  // namespace spillway
