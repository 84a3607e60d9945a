#include "runs/output/memory_samples.h"

#include <gtest/gtest.h>

#include "runs/output/chrome_trace.h"
#include "runs/log/run_json.h"

namespace spillway::testing {
namespace {

SessionState state_at(double time_s, Bytes host_bytes, Bytes device_bytes) {
  return {.time_s = time_s,
          .devices = {{"cpu", "present", 4_MiB, device_bytes}},
          .host_used_bytes = host_bytes};
}

TEST(MemorySamples, AreTakenAtEqualDistances) {
  MemorySamples memory;
  EXPECT_TRUE(memory.is_due(1000));
  memory.take(1000, state_at(0.5, 100, 7));
  EXPECT_FALSE(memory.is_due(1000.05));
  EXPECT_TRUE(memory.is_due(1000.11));
  ASSERT_EQ(memory.samples().size(), 1u);
  EXPECT_EQ(memory.samples()[0].time_s, 0.5);
  EXPECT_EQ(memory.samples()[0].host_bytes, 100u);
  EXPECT_EQ(memory.samples()[0].device_bytes, std::vector<Bytes>{7});
}

TEST(MemorySamples, AreFewInLongRuns) {
  MemorySamples memory;
  int num_taken = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double now_s = 0.1 * i;
    if (!memory.is_due(now_s)) continue;
    memory.take(now_s, state_at(now_s, 1, 1));
    ++num_taken;
  }
  EXPECT_LT(memory.samples().size(), 2000u);
  EXPECT_GE(memory.samples().size(), 1000u);
  EXPECT_LT(num_taken, 12'000);
  const auto& samples = memory.samples();
  EXPECT_EQ(samples.front().time_s, 0);
  for (std::size_t i = 1; i < samples.size(); ++i)
    EXPECT_GT(samples[i].time_s, samples[i - 1].time_s);
}

TEST(MemorySamples, AreCountersOfTheTrace) {
  const Json trace = Json::parse(chrome_trace({}, {}, {}, {{1.5, 300, {7, 9}}}));
  Json counters = Json::array();
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "C")
      counters.push_back({event["name"], event["ts"], event["args"]["used bytes"]});
  }
  EXPECT_EQ(counters, (Json{{"device 0 memory", 1.5e6, 7},
                            {"device 1 memory", 1.5e6, 9},
                            {"host memory", 1.5e6, 300}}));
}

}  // namespace
}  // namespace spillway::testing
