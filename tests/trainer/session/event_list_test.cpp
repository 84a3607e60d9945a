#include "trainer/session/event_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <vector>

namespace spillway {
namespace {

SessionEvent at_step(std::int64_t step) { return {.step = step}; }

std::vector<std::uint64_t> numbers(const std::vector<SessionEvent>& events) {
  std::vector<std::uint64_t> all;
  for (const SessionEvent& event : events) all.push_back(event.sequence);
  return all;
}

TEST(EventList, ReturnsEventsAfterANumber) {
  EventList events(10);
  EXPECT_TRUE(events.poll(0, 0).empty());
  for (std::int64_t step = 1; step <= 3; ++step) events.add(at_step(step));
  EXPECT_EQ(numbers(events.poll(0, 0)), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(events.poll(2, 0).at(0).step, 3);
  EXPECT_TRUE(events.poll(3, 0).empty());
}

TEST(EventList, KeepsTheLastEvents) {
  EventList events(2);
  for (std::int64_t step = 1; step <= 5; ++step) events.add(at_step(step));
  EXPECT_EQ(numbers(events.poll(0, 0)), (std::vector<std::uint64_t>{4, 5}));
}

TEST(EventList, WaitsForAnEvent) {
  EventList events(2);
  auto polled = std::async(std::launch::async, [&] { return events.poll(0, 60); });
  events.add(at_step(1));
  EXPECT_EQ(numbers(polled.get()), std::vector<std::uint64_t>{1});
}

}  // namespace
}  // namespace spillway
