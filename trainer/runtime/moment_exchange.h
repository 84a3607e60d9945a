#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "core/base/mutex.h"
#include "core/peers/peers.h"
#include "scheduler/plan/program.h"
#include "spilling/tiers/homes.h"

namespace spillway {

/// Moments whose host updates them alone (Layout::is_sharded()), on their way into a checkpoint,
/// which host 0 writes. This is the most f32 elements of one transfer.
inline constexpr std::int64_t kMomentSegment = 1'048'576;

/// On host 0: the moments that other hosts have, of one job. It holds a segment of each parameter
/// that it is reading. For one thread at a time, but for drop().
class RemoteMoments {
 public:
  /// `number`: of the job, the same on all hosts.
  RemoteMoments(Peers& peers, std::uint64_t number, std::shared_ptr<const JobPlan> plan);

  /// Calls `ready` once, on a thread of the peers, when all others send the state that host 0 has
  /// asked for, so that reading waits for nothing else; also if a host is lost.
  void begin(const std::function<void()>& ready);
  /// Reads elements of a parameter, none of which host 0 has. For each parameter and moment, later
  /// calls ask for later elements. Throws Error if a host is lost, and after drop().
  void read(int param, int moment, ElementRange elements, std::byte* into);
  /// Ends reading. The other hosts wait until the rest is taken, too.
  void end();
  /// Reading fails until the next begin(): the trial ends, or all hosts drop the open step, before
  /// Peers::begin_epoch(). Any thread.
  void drop();
  /// Whether drop() has been called since begin().
  bool is_dropped() const;

 private:
  struct Taken;
  /// Segment `number` of what a host has of a parameter.
  struct Segment {
    std::int64_t number = -1;
    std::shared_ptr<Taken> taken;  ///< null: all of it has been read
  };
  using Key = std::tuple<int, int, int>;  // parameter, moment, host
  void read_from(const HostPart& part, int param, int moment, ElementRange elements,
                 std::byte* into);
  Segment take(const HostPart& part, int param, int moment, std::int64_t number);

  Peers& peers_;
  const std::uint64_t number_;
  const std::shared_ptr<const JobPlan> plan_;
  /// Outlives this object in callbacks.
  struct Waiting;
  const std::shared_ptr<Waiting> waiting_;
  std::map<Key, Segment> segments_;  // the latest of each
};

/// On another host: sends its moments to host 0.
class MomentSender {
 public:
  /// As RemoteMoments.
  MomentSender(Peers& peers, std::uint64_t number, std::shared_ptr<const JobPlan> plan);

  /// Host 0 asks for the state after the step that has been committed. Not while it is busy.
  void prepare();
  /// Begins to send the moments of all parameters, unless drop() has been called since prepare().
  /// Calls `sent` once for each parameter whose moments may change again, `ended` after the last
  /// one, on threads of the peers or before it returns. The home outlives wait().
  void begin(const Home& home, const std::function<void(std::size_t param)>& sent,
             std::function<void()> ended);
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
  Mutex posting_;  // nothing is sent after drop(); locked before `mutex_`
  bool is_dropped_ SPILLWAY_GUARDED_BY(posting_) = true;
  Mutex mutex_;
  CondVar changed_;
  bool is_busy_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway
