#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "core/peers/framed_peers.h"
#include "scheduler/fleet/fleet.h"
#include "spillway/session_config.h"
#include "trainer/c10d/board.h"
#include "trainer/c10d/rendezvous.h"
#include "trainer/hosts/guests.h"
#include "trainer/hosts/host_words.h"

namespace spillway {

/// Is told how training together goes, on any thread and with the lock of Hosts: it should only
/// pass the news on.
class HostsObserver {
 public:
  virtual ~HostsObserver() = default;
  /// A host asks to take part: see Hosts::admit_guests().
  virtual void on_guest() = 0;
  /// Another host is lost, and the others may go on without it.
  virtual void on_host_lost(int host, const std::string& why) = 0;
  /// The jobs that hosts train together have to rest, and Hosts::rest() to be told.
  virtual void on_round(std::int64_t round) = 0;
  virtual void on_agreed(const Agreement& agreement) = 0;
  /// Training together has ended: see Hosts::problem().
  virtual void on_hosts_ended() = 0;
};

/// This host among those that train together (HostsConfig): what hosts agree on before they train
/// goes through the store at the endpoint; bytes and, while they train, words go from host to host.
/// Thread-safe.
class Hosts final : private PeersListener {
 public:
  /// Meets the others. `gpu`: the first of this host, for BackendKind::nccl. Throws ConfigError
  /// (`hosts.…`), HostLost, Error.
  Hosts(const HostsConfig& config, std::optional<int> gpu);
  /// Waits until all others are ready to part, too, unless training together has ended before.
  ~Hosts() override;

  /// Of this host among those that have met.
  const HostsConfig& config() const { return config_; }
  int number() const { return config_.number; }
  int size() const { return config_.size; }
  Peers& peers() { return *peers_; }

  /// Throws HostLost or Error if training together has ended.
  void require_no_problem() const;
  /// Writes a value that every host of this start can read. Throws HostLost.
  void tell(const std::string& name, const std::string& value);
  /// Waits for a value that some host writes. Throws HostLost; Error after the time limit, or if
  /// training together has ended.
  std::string hear(const std::string& name, int from);

  /// From now on, jobs train. Until the first call, a lost host ends training together, unless
  /// HostsConfig::start_size lets it begin with fewer.
  void attach(HostsObserver& observer);
  /// No job runs on this host any more.
  void detach(const RestingJobs& jobs);
  /// All jobs of this host rest, as the round has asked, and transfers belong to it.
  void rest(std::int64_t round, const RestingJobs& jobs);
  /// Calls a round: this host has dropped a step, or made one that other hosts had made before.
  void renew();
  /// Goes on without a host that does not answer.
  void drop(int host, const std::string& why);
  /// Whether the host is done with all trials.
  bool has_parted(int host) const;
  /// The hosts that are not lost, this one included.
  std::set<int> present() const;
  /// Whether host 0 was lost before it was done: jobs cannot go on.
  bool needs_successor() const;
  /// Whether this host is the one to take its place: the first that is not done.
  bool is_successor() const;
  /// Admits hosts that ask host 0 to take part, and refuses those beyond so many hosts. Returns
  /// whether there are any for announce_next().
  bool admit_guests(int most_hosts);
  /// The others, and the guests, go on in a new session with this host, whose trials have ended.
  /// Returns once they know. Not on a thread of the peers.
  void announce_next();
  /// Before any host has trained: ends training together, as HostsConfig::without_host_0() says.
  void give_up_host_0();
  /// The hosts of that session.
  std::optional<HostsConfig> next() const;

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
  void lost(int host, const std::string& why) override;
  void lose(int host, const std::string& why) SPILLWAY_REQUIRES(mutex_);
  void hear_parting(int from) SPILLWAY_REQUIRES(mutex_);
  void hear_word(int from, std::span<const std::byte> message) SPILLWAY_REQUIRES(mutex_);
  void hear_next(int from, std::span<const std::byte> message) SPILLWAY_REQUIRES(mutex_);
  void follow_fleet() SPILLWAY_REQUIRES(mutex_);
  void end(const std::string& why) SPILLWAY_REQUIRES(mutex_);
  void end_without_host_0() SPILLWAY_REQUIRES(mutex_);
  void meet_others();
  void connect(const std::optional<Token>& token, std::optional<int> gpu);
  std::string endpoint_as_host_0() SPILLWAY_REQUIRES(mutex_);
  void notify_all(std::span<const std::byte> message) SPILLWAY_REQUIRES(mutex_);
  void part();
  bool have_all_parted() const SPILLWAY_REQUIRES(mutex_);
  bool lacks_host_0() const SPILLWAY_REQUIRES(mutex_);
  std::set<int> in_training() const SPILLWAY_REQUIRES(mutex_);
  void show_life(const std::stop_token& stop);

  const HostsConfig given_;
  HostsConfig config_;  ///< among those that have met; unchanged since then
  mutable Mutex mutex_;
  CondVar changed_;
  std::string why_ SPILLWAY_GUARDED_BY(mutex_);                     ///< training together has ended
  std::set<int> parting_ SPILLWAY_GUARDED_BY(mutex_);               ///< hosts that are done
  std::optional<Agreement> agreement_ SPILLWAY_GUARDED_BY(mutex_);  ///< the latest
  /// Where hosts would listen as host 0, as they said in the latest round.
  HostEndpoints endpoints_ SPILLWAY_GUARDED_BY(mutex_);
  /// They meet with the others, under these numbers.
  std::map<int, Guest> admitted_ SPILLWAY_GUARDED_BY(mutex_);
  std::optional<HostsConfig> next_ SPILLWAY_GUARDED_BY(mutex_);
  /// This host has told others of the next meeting: it stays until all have heard it.
  bool passes_on_ SPILLWAY_GUARDED_BY(mutex_) = false;
  std::vector<Clock::time_point> last_heard_ SPILLWAY_GUARDED_BY(mutex_);  ///< by host
  Fleet fleet_ SPILLWAY_GUARDED_BY(mutex_);
  HostsObserver* observer_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;
  bool has_begun_ SPILLWAY_GUARDED_BY(mutex_) = false;               ///< the first run
  std::optional<RestingJobs> detached_ SPILLWAY_GUARDED_BY(mutex_);  ///< outside of a run
  std::optional<Rendezvous> rendezvous_;
  std::optional<Board> board_;
  std::optional<Guests> guests_;  ///< of host 0
  std::string prefix_;            ///< of this meeting's keys
  std::string address_;           ///< of this host
  Mutex abandoning_;
  std::unique_ptr<FramedPeers> peers_;
  std::jthread life_;
};

}  // namespace spillway
