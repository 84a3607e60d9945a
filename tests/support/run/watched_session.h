#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "spillway/session.h"
#include "tests/support/models/wrapped_model.h"

/// Sessions that change during a run.
namespace spillway::testing {

inline SessionConfig with_faults(SessionConfig config,
                                 const std::map<std::size_t, DeviceFault>& faults) {
  for (const auto& [device, fault] : faults) config.devices[device].imitate.fault = fault;
  return config;
}

/// Lets the layers of a step compute once the test permits it.
class Lockstep {
 public:
  void allow(std::int64_t step) {
    {
      const std::lock_guard lock(mutex_);
      allowed_ = std::max(allowed_, step);
    }
    changed_.notify_all();
  }
  void wait_for(std::int64_t step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return allowed_ >= step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t allowed_ = 0;
};

/// A run, watched from another thread, which may change it at each event.
class WatchedSession {
 public:
  explicit WatchedSession(const SessionConfig& config) : session(config) {}

  /// One trial, whose steps start only after the reactions to earlier events.
  JobId submit_in_lockstep(const TrialConfig& trial) {
    return in_lockstep_ =
               session.submit(with_before(trial, [lockstep = lockstep_](LayerContext& context) {
                 if (context.training) lockstep->wait_for(context.random.step);
               }));
  }

  void run(const std::function<void(const SessionEvent&)>& react = {}) {
    auto running = std::async(std::launch::async, [&] { session.run(); });
    for (bool last = false; !last;) {
      last = running.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      for (const auto& event : session.poll(events.size(), last ? 0 : 0.05)) {
        events.push_back(event);
        if (react) react(event);
        if (event.trial == in_lockstep_) lockstep_->allow(event.step);
      }
    }
    running.get();
    result = session.result();
  }

  /// The lane counts of `trial`, in order.
  std::vector<int> lanes_of(JobId trial) const {
    std::vector<int> lanes;
    for (const auto& event : all(SessionEvent::Kind::resized)) {
      if (event.trial == trial) lanes.push_back(event.lanes);
    }
    return lanes;
  }
  std::vector<SessionEvent> all(SessionEvent::Kind kind) const { return all(events, kind); }
  /// Blocks until the run has emitted `number` events, handled or not.
  void await(SessionEvent::Kind kind, std::size_t number) const {
    for (;;) {
      const auto until_now = session.poll(0, 0);
      if (all(until_now, kind).size() >= number) return;
      session.poll(until_now.size(), 10);
    }
  }

  Session session;
  std::vector<SessionEvent> events;
  RunResult result;

 private:
  static std::vector<SessionEvent> all(const std::vector<SessionEvent>& events,
                                       SessionEvent::Kind kind) {
    std::vector<SessionEvent> found;
    for (const auto& event : events) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }

  JobId in_lockstep_;
  const std::shared_ptr<Lockstep> lockstep_ = std::make_shared<Lockstep>();
};

}  // namespace spillway::testing
