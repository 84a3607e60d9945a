#include "scheduler/simulation/copy_queues.h"

#include <gtest/gtest.h>

#include <utility>

namespace spillway {
namespace {

constexpr Bytes kBytes = 1'000'000;

/// The host's links take 1 s for kBytes, the link between devices 0 and 1 takes 2 s, and the one
/// that all share 4 s.
VirtualCosts costs() {
  return {.copy_bytes_per_s = 1e6,
          .links = LinkTable({{.between = {0, 1}, .bytes_per_s = 500'000, .latency_s = 0.5},
                              {.between = {0, 1, 2, 3}, .bytes_per_s = 250'000, .shared = true}}),
          .copy_latency_s = 0};
}

void expect_span(const CopyQueues::Span& span, double begin_s, double end_s) {
  EXPECT_DOUBLE_EQ(span.begin_s, begin_s);
  EXPECT_DOUBLE_EQ(span.end_s, end_s);
}

TEST(LinkTable, FindsTheFirstLinkOfAPair) {
  const LinkTable links = costs().links;
  ASSERT_EQ(links.paths().size(), 3u) << "one for each direction, and a shared one";
  EXPECT_EQ(links.path(0, 1), 0);
  EXPECT_EQ(links.path(1, 0), 1);
  for (const auto& [from, to] : {std::pair(0u, 2u), {2u, 0u}, {3u, 2u}}) {
    EXPECT_EQ(links.path(from, to), 2);
  }
  EXPECT_EQ(links.path(2, 2), -1);
  EXPECT_EQ(links.path(0, 4), -1);
  EXPECT_EQ(LinkTable().path(0, 1), -1);
}

TEST(LinkTable, KnowsWhichDevicesMayChangePlaces) {
  const LinkTable links = costs().links;
  EXPECT_TRUE(links.are_alike({0, 1}));
  EXPECT_TRUE(links.are_alike({2, 3}));
  EXPECT_TRUE(links.are_alike({0, 2, 3})) << "all over the shared link";
  EXPECT_FALSE(links.are_alike({0, 1, 2}));
  EXPECT_FALSE(links.are_alike({2, 3, 4}));
  EXPECT_TRUE(links.are_alike({4, 5, 6}));
  EXPECT_TRUE(LinkTable({{.between = {0, 1, 2}, .bytes_per_s = 1}}).are_alike({0, 1, 2}));
}

TEST(CopyQueues, FreeALinkBeforeTheLatencyHasPassed) {
  VirtualCosts all = costs();
  all.copy_latency_s = 0.25;
  CopyQueues queues(all, 4);
  expect_span(queues.from_host(all, 0, kBytes, 0), 0, 1.25);
  expect_span(queues.from_host(all, 0, kBytes, 0), 1.25, 2.25);
  expect_span(queues.from_host(all, 0, kBytes, 2.5), 2.5, 3.75);
  expect_span(queues.from_device(all, 1, 0, kBytes, 0), 0, 2.75);
}

TEST(CopyQueues, TakeOneLinkInTurns) {
  const VirtualCosts all = costs();
  CopyQueues queues(all, 5);
  expect_span(queues.from_host(all, 0, kBytes, 0), 0, 1);
  expect_span(queues.from_host(all, 0, kBytes, 0), 1, 2);
  expect_span(queues.to_host(all, 0, kBytes, 0), 0, 1);
}

/// No link leads to device 4: its copies share the link with the host.
TEST(CopyQueues, LetCopiesFromDevicesGoFirst) {
  const VirtualCosts all = costs();
  CopyQueues queues(all, 5);
  expect_span(queues.from_host(all, 4, 4 * kBytes, 0), 0, 4);
  expect_span(queues.from_device(all, 4, 0, kBytes, 0), 0, 1);
  expect_span(queues.from_device(all, 4, 1, kBytes, 0.5), 1, 2);
  expect_span(queues.from_host(all, 4, kBytes, 0), 6, 7);
  expect_span(queues.from_device(all, 4, 0, kBytes, 9), 9, 10);
  expect_span(queues.from_host(all, 4, kBytes, 9), 10, 11);
  expect_span(queues.to_host(all, 4, kBytes, 0), 0, 1);
}

TEST(CopyQueues, TakeLinksBesideThoseWithTheHost) {
  const VirtualCosts all = costs();
  CopyQueues queues(all, 4);
  queues.from_host(all, 1, kBytes, 0);
  expect_span(queues.from_device(all, 1, 0, kBytes, 0), 0, 2.5);
  // The other direction.
  expect_span(queues.from_device(all, 0, 1, kBytes, 0), 0, 2.5);
  expect_span(queues.from_device(all, 1, 0, kBytes, 0), 2.5, 4.5);
  // The shared link.
  expect_span(queues.from_device(all, 2, 0, kBytes, 0), 0, 4);
  expect_span(queues.from_device(all, 3, 0, kBytes, 0), 4, 8);
  expect_span(queues.from_device(all, 3, 1, kBytes, 20), 20, 24);
}

TEST(CopyQueues, LetAnyNumberOfCopiesWait) {
  const VirtualCosts all = costs();
  CopyQueues queues(all, 4);
  for (int i = 0; i < 200; ++i) queues.from_device(all, i % 2 == 0 ? 2 : 3, 0, kBytes, 0);
  expect_span(queues.from_device(all, 2, 0, kBytes, 0), 800, 804);
}

/// As in a pass over a step, which is not in the order of time.
TEST(LinkTimes, FillGapsAndForgetOldOnes) {
  LinkTimes times;
  for (int i = 99; i >= 0; --i) times.take(2 * i, 1);
  expect_span(times.take(198, 1), 199, 200);
  expect_span(times.take(150, 2), 200, 202);
  expect_span(times.take(150, 1), 151, 152);
  const double first_s = times.take(0, 1).begin_s;
  EXPECT_GE(first_s, 0);
  EXPECT_LT(first_s, 150);
}

/// A copy that arrives earlier than one before it ends with that one.
TEST(CopyQueues, EndCopiesOfAQueueInOrder) {
  const VirtualCosts all = costs();
  CopyQueues queues(all, 3);
  expect_span(queues.from_device(all, 0, 2, kBytes, 0), 0, 4);
  expect_span(queues.from_device(all, 0, 1, kBytes, 0), 4, 4);
}

TEST(CopyQueues, UseCoresAsTheirRatesAllow) {
  const VirtualCosts all = costs();
  CopyQueues queues(all, 5);
  EXPECT_EQ(queues.busy_cores(all, 1, 0), 0);
  queues.from_device(all, 1, 0, kBytes, 0);
  EXPECT_DOUBLE_EQ(queues.busy_cores(all, 1, 1), 0.5);
  queues.from_host(all, 1, kBytes, 0);
  EXPECT_DOUBLE_EQ(queues.busy_cores(all, 1, 0.5), 1.5);
  EXPECT_EQ(queues.busy_cores(all, 1, 3), 0);
  queues.from_host(all, 1, 10 * kBytes, 10);
  queues.from_device(all, 1, 0, kBytes, 10);
  EXPECT_DOUBLE_EQ(queues.busy_cores(all, 1, 11), 1.5) << "both, in whatever order they end";
  queues.from_device(all, 4, 0, kBytes, 0);
  EXPECT_DOUBLE_EQ(queues.busy_cores(all, 4, 0.5), 1) << "one link, not two";
}

}  // namespace
}  // namespace spillway
