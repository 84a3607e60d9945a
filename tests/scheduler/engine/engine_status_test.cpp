#include "scheduler/engine/engine_status.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/random/elastic_jobs.h"
#include "tests/support/random/random_workload.h"

namespace spillway::testing {
namespace {

/// The actions that a shell has started but not finished.
std::set<ActionId> ids(const EngineStatus& status) {
  std::set<ActionId> ids;
  for (const auto& [id, span] : status.under_way) ids.insert(id);
  return ids;
}

TEST(EngineStatus, MatchesTheEngineAtEveryEvent) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    const Workload workload = make_workload(seed);
    VirtualShell shell(workload.config, workload.costs);
    std::set<ActionId> started;
    shell.on_action = [&](const Action& action) {
      std::visit(
          [&](const auto& a) {
            if constexpr (requires { a.id; }) started.insert(a.id);
          },
          action);
    };
    shell.on_completion = [&](const Done& done) { started.erase(done.id); };
    for (std::size_t j = 0; j < workload.jobs.size(); ++j) shell.submit(JobId(j), workload.jobs[j]);
    do {
      const EngineStatus status = status_of(shell.engine());
      ASSERT_EQ(ids(status), started);
      for (std::size_t d = 0; d < status.used.size(); ++d) {
        ASSERT_LE(status.used[d], workload.config.device_budgets[d]);
      }
      ASSERT_EQ(status.host_used, shell.engine().host_used());
    } while (shell.advance());
    EXPECT_TRUE(started.empty());
  }
}

/// The first status that satisfies `found(status)`.
template <typename Found>
EngineStatus await(WatchedRun& run, const Found& found) {
  EngineStatus status;
  run.run_until([&] { return found(status = status_of(run.engine())); });
  return status;
}

TEST(EngineStatus, ListsRunningWorkByDevice) {
  WatchedRun run(devices({kAmple, kAmple}));
  run.submit(plan_of({2, 2}));
  const EngineStatus status = await(run, [](const EngineStatus& m) {
    return m.jobs[0].step == 2 && m.used[0] > 0 && m.used[1] > 0 && m.jobs[0].waits_for.empty();
  });
  std::set<std::string> names;
  for (const auto& [id, span] : status.under_way) {
    EXPECT_EQ(span.job, JobId(0));
    EXPECT_EQ(span.step, 2);
    EXPECT_EQ(span.bytes > 0, span.track == TraceSpan::Track::to_device) << span.name;
    if (span.track == TraceSpan::Track::compute) names.insert(span.name);
  }
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) EXPECT_TRUE(name.starts_with("backward 0-3 vn ")) << name;
  EXPECT_EQ(status.jobs[0].tracks, (std::vector{kFirst, kSecond}));
}

TEST(EngineStatus, NamesWhatAJobWaitsFor) {
  EngineConfig config = devices({kAmple});
  config.host_budget = plan_of({1})->layout.home_bytes;
  WatchedRun run(config);
  for (int j = 0; j < 2; ++j) run.submit(plan_of({1}));
  std::set<std::string> first, second;
  do {
    const EngineStatus status = status_of(run.engine());
    first.insert(status.jobs[0].waits_for);
    if (status.jobs[0].step < 2) second.insert(status.jobs[1].waits_for);
  } while (run.advance());
  EXPECT_EQ(first, (std::set<std::string>{"", "copies", "host operations"}));
  EXPECT_EQ(second, std::set<std::string>{"host memory"});
}

TEST(EngineStatus, NamesTheMissingDeviceOrShare) {
  WatchedRun run(devices({kAmple}));
  const JobId job = run.submit(plan_of({1}));
  const auto waits_for = [&](const std::string& what) {
    return status_of(run.engine()).jobs[0].waits_for == what;
  };
  run.run_into_step(job, 1);
  run.shell.remove_device(kFirst);
  while (run.advance()) {
  }
  EXPECT_TRUE(waits_for("a device"));
  EXPECT_EQ(status_of(run.engine()).jobs[0].tracks, std::vector{DeviceId()});
  run.shell.add_device(kAmple);
  run.shell.pause(job);
  while (run.advance()) {
  }
  EXPECT_TRUE(waits_for("its share of devices"));
  run.shell.hold(job, {run.job(job).step});
  run.shell.resume(job);
  while (run.advance()) {
  }
  EXPECT_TRUE(waits_for("other trials or a call"));
  run.shell.hold(job, {kNoStep});
  run.run();
  EXPECT_TRUE(waits_for(""));
}

}  // namespace
}  // namespace spillway::testing
