#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/peers/peers.h"
#include "scheduler/plan/program.h"
#include "spilling/tiers/homes.h"

namespace spillway {

/// State that not every host has (Layout::is_sharded()), on its way to host 0 or its successor,
/// which writes checkpoints and the final weights. This is the most f32 elements of one transfer.
inline constexpr std::int64_t kStateSegment = 1'048'576;

/// Of a parameter's state: its master, if hosts divide it or after a loss; from 0 on, moments.
inline constexpr int kMasters = -1;
/// What hosts send: all of their state for a checkpoint; at the end of a trial, masters.
enum class SentState : std::uint8_t { all, masters };

/// Who reads the state of a job, and who sends it.
struct StateRoute {
  int reader = 0;
  /// After a loss: hosts that are lost, or have ended the job. Shadows send what these had.
  std::set<int> gone;
  /// After a loss hosts may lack the latest weights of others, so these are sent, too.
  bool is_rescue = false;

  /// The host that sends a part; none: the reader has it. The part is not out of reach.
  std::optional<int> sender_of(const HostPart& part) const;
  /// Whether hosts that are left have all parts of the state.
  bool reaches_all(const Layout& layout) const;
};

/// Sends TrainingJob::last_numbers() to a host that takes them. `number`: of the job, the same on
/// all hosts.
void send_numbers(Peers& peers, std::uint64_t number, int to, std::vector<std::byte> numbers);
/// Calls `taken` on a thread of the peers, but not if the host is lost.
void take_numbers(Peers& peers, std::uint64_t number, int from, std::size_t bytes,
                  const std::function<void(std::vector<std::byte>)>& taken);

/// On host 0 or its successor: the state that other hosts have, of one job. It holds a segment of
/// each parameter that it is reading. For one thread at a time, but for drop().
class RemoteState {
 public:
  /// `number`: of the job, the same on all hosts.
  RemoteState(Peers& peers, std::uint64_t number, std::shared_ptr<const JobPlan> plan);

  /// From the next begin() on. At first host 0 reads, and no host is lost.
  void take_route(StateRoute route) { route_ = std::move(route); }
  bool is_rescue() const { return route_.is_rescue; }
  /// Calls `ready` once, on a thread of the peers, when all others send the state that the reader
  /// has asked for, so that reading waits for nothing else; also if a host is lost. Not before
  /// end() of what was read before.
  void begin(SentState what, const std::function<void()>& ready);
  /// Reads elements of a parameter that this host does not have, or does not update if this is a
  /// rescue. For each parameter and plane, later calls ask for later elements. Throws Error if a
  /// host is lost, and after drop().
  void read(int param, int plane, ElementRange elements, std::byte* into);
  /// Ends reading. The other hosts wait until the rest is taken, too.
  void end();
  /// Reading fails until the next begin(): the trial ends, or all hosts drop the open step, before
  /// Peers::begin_epoch(). Any thread.
  void drop();
  /// Whether drop() has been called since begin().
  bool is_dropped() const;
  /// Whether something could not be read since begin().
  bool has_failed() const { return has_failed_; }

 private:
  struct Taken;
  /// Segment `number` of what a host has of a parameter.
  struct Segment {
    std::int64_t number = -1;
    std::shared_ptr<Taken> taken;  ///< null: all of it has been read
  };
  using Key = std::tuple<int, int, int>;  // parameter, plane, host of the part
  void read_from(const HostPart& part, int param, int plane, ElementRange elements,
                 std::byte* into);
  Segment take(const HostPart& part, int param, int plane, std::int64_t number);

  Peers& peers_;
  const std::uint64_t number_;
  const std::shared_ptr<const JobPlan> plan_;
  /// Outlives this object in callbacks.
  struct Waiting;
  const std::shared_ptr<Waiting> waiting_;
  StateRoute route_;
  SentState what_ = SentState::all;
  bool has_failed_ = false;
  std::map<Key, Segment> segments_;  // the latest of each
};

/// On another host: sends its state to the reader.
class StateSender {
 public:
  /// As RemoteState.
  StateSender(Peers& peers, std::uint64_t number, std::shared_ptr<const JobPlan> plan);

  /// As RemoteState.
  void take_route(StateRoute route) { route_ = std::move(route); }
  /// The reader asks for the state after the step that has been committed. Not while it is busy.
  void prepare();
  /// Begins to send the state of all parameters, unless drop() has been called since prepare().
  /// Calls `sent` once for each parameter whose state may change again, `ended` after the last
  /// one, on threads of the peers or before it returns; `is_lost`: the reader may lack something.
  /// The home outlives wait().
  void begin(SentState what, const Home& home, const std::function<void(std::size_t param)>& sent,
             std::function<void(bool is_lost)> ended);
  /// Instead of begin(): the trial has ended.
  void give_up();
  /// All hosts drop the open step, before Peers::begin_epoch(). Any thread.
  void drop();
  /// From prepare() until everything has been sent, or is dropped.
  bool is_busy();
  /// Until it is not busy.
  void wait();

 private:
  Peers& peers_;
  const std::uint64_t number_;
  const std::shared_ptr<const JobPlan> plan_;
  StateRoute route_;
  Mutex posting_;  // nothing is sent after drop(); locked before `mutex_`
  bool is_dropped_ SPILLWAY_GUARDED_BY(posting_) = true;
  Mutex mutex_;
  CondVar changed_;
  bool is_busy_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway
