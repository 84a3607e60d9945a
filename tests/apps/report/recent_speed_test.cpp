#include "apps/report/recent_speed.h"

#include <gtest/gtest.h>

#include "tests/support/run/made_up_run.h"

namespace spillway::testing {
namespace {

using Kind = SessionEvent::Kind;

SessionEvent event_at(double time_s, Kind kind, std::int64_t step) {
  SessionEvent event = made_up_event(1, time_s, 0, kind);
  event.step = step;
  event.state = TrialState::running;
  return event;
}

TEST(RecentSpeed, IsThatOfTheLastTenSeconds) {
  RecentSpeed speed;
  EXPECT_EQ(speed.steps_per_s(0), std::nullopt);
  speed.take(event_at(100, Kind::state, 0));
  EXPECT_EQ(speed.steps_per_s(0), std::nullopt);
  speed.take(event_at(104, Kind::step, 1));
  EXPECT_DOUBLE_EQ(speed.steps_per_s(0).value(), 0.25);
  for (int i = 1; i <= 100; ++i) speed.take(event_at(104 + 0.5 * i, Kind::step, 1 + i));
  EXPECT_DOUBLE_EQ(speed.steps_per_s(0).value(), 2);  // the slow first step no longer counts
}

TEST(RecentSpeed, CountsLongStepsWhole) {
  RecentSpeed speed;
  speed.take(event_at(0, Kind::state, 0));
  for (int i = 1; i <= 5; ++i) speed.take(event_at(40 * i, Kind::step, i));
  EXPECT_DOUBLE_EQ(speed.steps_per_s(0).value(), 1.0 / 40);
}

TEST(RecentSpeed, CountsAllQuickSteps) {
  RecentSpeed speed;
  speed.take(event_at(0, Kind::state, 0));
  for (int i = 1; i <= 30'000; ++i) speed.take(event_at(0.001 * i, Kind::step, i));
  EXPECT_NEAR(speed.steps_per_s(0).value(), 1000, 1e-6);
}

TEST(RecentSpeed, BeginsAnewWhenATrialIsResumedOrHasWaited) {
  for (const Kind kind : {Kind::resumed, Kind::state}) {
    RecentSpeed speed;
    speed.take(event_at(0, Kind::state, 0));
    speed.take(event_at(1, Kind::step, 1));
    speed.take(event_at(100, kind, 1));
    EXPECT_EQ(speed.steps_per_s(0), std::nullopt);
    speed.take(event_at(102, Kind::step, 2));
    EXPECT_DOUBLE_EQ(speed.steps_per_s(0).value(), 0.5);
  }
}

}  // namespace
}  // namespace spillway::testing
