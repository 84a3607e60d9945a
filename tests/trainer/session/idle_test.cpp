#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <future>

#include "spillway/session.h"
#include "tests/support/run/training_run.h"

namespace spillway::testing {
namespace {

double cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// CPU seconds a second, of all threads, while there is nothing to do. One that spins makes it 1.
double load_while_polling(const Session& session, std::uint64_t sequence) {
  const auto begin = std::chrono::steady_clock::now();
  const double cpu = cpu_s();
  EXPECT_TRUE(session.poll(sequence, 1).empty());
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(waited.count(), 1);
  return (cpu_s() - cpu) / waited.count();
}

TEST(Idle, ASessionWithoutTrialsUsesNoCpu) {
  const Session session(session_of(2, 1_MiB));
  EXPECT_LT(load_while_polling(session, 0), 0.1);
}

TEST(Idle, ASessionWhoseTrialsHaveEndedUsesNoCpu) {
  Session session(session_of(2, kAmple));
  session.submit(tiny_trial());
  session.run();
  EXPECT_LT(load_while_polling(session, session.poll(0, 0).back().sequence), 0.1);
}

/// Blocks until the run has had such an event; its number.
std::uint64_t await(const Session& session, SessionEvent::Kind kind) {
  for (std::uint64_t seen = 0;;) {
    for (const auto& event : session.poll(seen, 10)) {
      seen = event.sequence;
      if (event.kind == kind) return seen;
    }
  }
}

/// Blocks until nothing has happened for a while; the number of the last event.
std::uint64_t await_quiet(const Session& session) {
  for (std::uint64_t seen = 0;;) {
    const auto events = session.poll(seen, 0.5);
    if (events.empty()) return seen;
    seen = events.back().sequence;
  }
}

TEST(Idle, ARunWithoutADeviceUsesNoCpu) {
  Session session(session_of(1, kAmple));
  TrialConfig trial = tiny_trial();
  trial.train.max_steps = 1'000'000;
  session.submit(trial);
  auto running = std::async(std::launch::async, [&] { session.run(); });
  await(session, SessionEvent::Kind::step);
  session.remove_device(0);
  await(session, SessionEvent::Kind::left);
  EXPECT_LT(load_while_polling(session, await_quiet(session)), 0.1);
  session.stop();
  running.get();
}

TEST(Idle, ARunWhoseDeviceHangsUsesNoCpu) {
  SessionConfig config = session_of(1, kAmple);
  config.devices[0].imitate.fault = {DeviceFault::Kind::hang, 0};
  config.device_timeout_s = 5;
  Session session(config);
  session.submit(tiny_trial());
  auto running = std::async(std::launch::async, [&] { session.run(); });
  EXPECT_LT(load_while_polling(session, await_quiet(session)), 0.1);
  await(session, SessionEvent::Kind::lost);
  session.stop();
  running.get();
}

}  // namespace
}  // namespace spillway::testing
