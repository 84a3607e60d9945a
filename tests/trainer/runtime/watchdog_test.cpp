#include "trainer/runtime/watchdog.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <thread>

namespace spillway {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(Watchdog, FiresOnceWithoutASign) {
  boost::asio::io_context io;
  int barks = 0;
  Watchdog dog(io, [&] { ++barks; });
  dog.expect(milliseconds(1));
  io.run();
  EXPECT_EQ(barks, 1);
}

TEST(Watchdog, MovesTheDeadlineBothWays) {
  boost::asio::io_context io;
  bool barked = false;
  Watchdog dog(io, [&] { barked = true; });
  dog.expect(hours(1));
  dog.expect(milliseconds(1));
  io.run();
  EXPECT_TRUE(barked);
}

TEST(Watchdog, RestsWhileNothingIsExpected) {
  boost::asio::io_context io;
  Watchdog dog(io, [] { FAIL() << "nothing is expected"; });
  dog.expect(milliseconds(1));
  dog.rest();
  io.run();
}

/// As after SIGSTOP and SIGCONT: the watched work was stopped for the same time.
TEST(Watchdog, IgnoresTimeInWhichTheProcessWasStopped) {
  boost::asio::io_context io;
  int barks = 0;
  Watchdog dog(io, [&] { ++barks; });
  dog.expect(milliseconds(1250));
  std::this_thread::sleep_for(milliseconds(2050));  // nothing runs the timers
  io.poll();
  EXPECT_EQ(barks, 0);
  io.run();
  EXPECT_EQ(barks, 1) << "it goes on counting";
}

/// Both timers have expired before either handler runs.
TEST(Watchdog, StaysSilentAfterDestruction) {
  boost::asio::io_context io;
  std::unique_ptr<Watchdog> first, second;
  int barks = 0;
  first = std::make_unique<Watchdog>(io, [&] { ++barks, second.reset(); });
  second = std::make_unique<Watchdog>(io, [&] { ++barks, first.reset(); });
  first->expect(milliseconds(0));
  second->expect(milliseconds(0));
  io.run();
  EXPECT_EQ(barks, 1);
}

}  // namespace
}  // namespace spillway
