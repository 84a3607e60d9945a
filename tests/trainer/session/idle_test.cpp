#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <thread>

#include "spillway/session.h"
#include "tests/support/check/thread_status.h"
#include "tests/support/run/training_run.h"

namespace spillway::testing {
namespace {

constexpr int kLooks = 20;

/// Calls `wait` for a second and looks at all threads 20 times meanwhile. Returns the most looks in
/// which one thread was running or had woken up since the previous look. Load does not change these
/// counts.
int looks_at_work(const std::function<void()>& wait) {
  std::atomic<bool> stops = false;
  auto looking = std::async(std::launch::async, [&] {
    const std::string self = std::to_string(gettid());
    std::map<std::string, ThreadStatus> last;
    std::map<std::string, int> looks;
    for (int i = 0; i <= kLooks && !stops; ++i) {
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        const std::string id = task.path().filename();
        if (id == self) continue;
        const ThreadStatus now = status_of(task.path());
        const auto [known, is_new] = last.try_emplace(id, now);
        if (!is_new && (now.state == 'R' || now.sleeps > known->second.sleeps)) ++looks[id];
        known->second = now;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1000 / kLooks));
    }
    int most = 0;
    for (const auto& [id, count] : looks) most = std::max(most, count);
    return most;
  });
  wait();
  stops = true;
  return looking.get();
}

/// The minimum of ten tries: TBB's threads look for work for a while before they sleep.
int looks_while_polling(const Session& session, std::uint64_t sequence) {
  int least = kLooks;
  for (int i = 0; i < 10 && least >= kLooks / 4; ++i) {
    least =
        std::min(least, looks_at_work([&] { EXPECT_TRUE(session.poll(sequence, 1.2).empty()); }));
  }
  return least;
}

TEST(Idle, DetectsSpinningAndFrequentWakeUps) {
  const auto until_end = [](const auto& step) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1200);
    while (std::chrono::steady_clock::now() < end) step();
  };
  EXPECT_GT(looks_at_work([&] { until_end([] {}); }), kLooks / 2);
  EXPECT_GT(looks_at_work([&] {
              until_end([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
            }),
            kLooks / 2);
}

TEST(Idle, SleepsWithoutTrials) {
  const Session session(session_of(2, 1_MiB));
  EXPECT_LT(looks_while_polling(session, 0), kLooks / 4);
}

TEST(Idle, SleepsAfterAllTrials) {
  Session session(session_of(2, kAmple));
  session.submit(tiny_trial());
  session.run();
  EXPECT_LT(looks_while_polling(session, session.poll(0, 0).back().sequence), kLooks / 4);
}

/// Blocks until the run has emitted such an event; returns its number.
std::uint64_t await(const Session& session, SessionEvent::Kind kind) {
  for (std::uint64_t seen = 0;;) {
    for (const auto& event : session.poll(seen, 10)) {
      seen = event.sequence;
      if (event.kind == kind) return seen;
    }
  }
}

/// Blocks until nothing has happened for a while; returns the number of the last event.
std::uint64_t await_quiet(const Session& session) {
  for (std::uint64_t seen = 0;;) {
    const auto events = session.poll(seen, 0.5);
    if (events.empty()) return seen;
    seen = events.back().sequence;
  }
}

TEST(Idle, SleepsWithoutDevices) {
  Session session(session_of(1, kAmple));
  TrialConfig trial = tiny_trial();
  trial.train.max_steps = 1'000'000;
  session.submit(trial);
  auto running = std::async(std::launch::async, [&] { session.run(); });
  await(session, SessionEvent::Kind::step);
  session.remove_device(0);
  await(session, SessionEvent::Kind::left);
  EXPECT_LT(looks_while_polling(session, await_quiet(session)), kLooks / 4);
  session.stop();
  running.get();
}

TEST(Idle, SleepsWhileADeviceHangs) {
  SessionConfig config = session_of(1, kAmple);
  config.devices[0].imitate.fault = {DeviceFault::Kind::hang, 0};
  config.device_timeout_s = 15;
  Session session(config);
  session.submit(tiny_trial());
  auto running = std::async(std::launch::async, [&] { session.run(); });
  EXPECT_LT(looks_while_polling(session, await_quiet(session)), kLooks / 4);
  await(session, SessionEvent::Kind::lost);
  session.stop();
  running.get();
}

}  // namespace
}  // namespace spillway::testing
