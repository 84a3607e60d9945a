#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

#include "tests/support/training_run.h"
#include "trainer/session.h"

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

}  // namespace
}  // namespace spillway::testing
