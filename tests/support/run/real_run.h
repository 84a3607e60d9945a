#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "spilling/tiers/memory_store.h"
#include "tests/support/random/random_workload.h"
#include "tests/support/run/checking_runner.h"
#include "tests/support/run/thread_pool.h"
#include "trainer/runtime/shell.h"

namespace spillway::testing {

/// Records the events of a shell's observer, and forwards some of them.
struct Heard final : ShellObserver {
  struct Left {
    DeviceId device;
    bool lost;
    std::string why;
  };
  std::map<JobId, std::int64_t> steps;
  std::map<JobId, JobEnd> ends;
  std::map<JobId, std::string> reasons;
  std::map<JobId, int> redone;
  std::map<JobId, std::vector<std::int64_t>> rested;
  std::map<JobId, std::vector<std::size_t>> lanes;  ///< of each later plan
  std::vector<DeviceId> joined;
  std::vector<Left> left;
  std::function<void(JobId, std::int64_t step)> committed;
  std::function<void(const Left&)> when_left;
  std::function<void(JobId)> ended;
  std::function<void(const JobInterrupted&)> interrupted;

  void on_started(JobId) override {}
  void on_committed(const StepCommitted& news) override {
    steps[news.job] = news.step;
    if (committed) committed(news.job, news.step);
  }
  void on_rested(const JobRested& news) override { rested[news.job].push_back(news.step); }
  void on_interrupted(const JobInterrupted& news) override { interrupted(news); }
  void on_redone(JobId job, std::int64_t) override { ++redone[job]; }
  void on_resized(JobId job, const JobPlan& plan) override {
    lanes[job].push_back(at(plan.strategy.tracks));
  }
  void on_ended(JobId job, JobEnd end, const std::string& reason) override {
    ends[job] = end;
    reasons[job] = reason;
    if (ended) ended(job);
  }
  void on_device_joined(DeviceId device) override { joined.push_back(device); }
  void on_device_left(DeviceId device, bool lost, const std::string& why) override {
    left.push_back({device, lost, why});
    if (when_left) when_left(left.back());
  }
};

/// Calls `test(seed)` with seeds from 1 until one fails.
template <typename Test>
void for_seeds(std::uint64_t last, const Test& test) {
  for (std::uint64_t seed = 1; seed <= last && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test(seed);
  }
}

/// A real run: device threads, copy queues and host workers, with a runner that checks bytes.
class RealRun {
 public:
  using MakeDevice = std::function<std::unique_ptr<Device>(std::size_t number, Bytes budget)>;
  static constexpr Bytes kTouched = 64_KiB;

  /// `switches` by device; devices without an entry have none. Homes lie in `store`, or in memory.
  explicit RealRun(Workload w, std::vector<CpuSwitches> switches = {}, Patience patience = {},
                   Store* store = nullptr)
      : RealRun(make_cpus(std::move(switches), w.config.split), std::move(w), patience, store) {}

  RealRun(const MakeDevice& make, Workload w, Patience patience = {}, Store* store = nullptr,
          Bytes touched = kTouched)
      : workload(std::move(w)),
        devices(make_devices(make)),
        home_store(*devices.front()),
        host(workload.config.host_budget, store ? *store : home_store),
        pool(2),
        shell(workload.config, pointers(), host, pool, runner, heard, nullptr,
              {.patience = patience, .touched = touched, .links = workload.costs.links}) {
    for (std::size_t j = 0; j < workload.jobs.size(); ++j) {
      runner.add(JobId(j), workload.jobs[j]);
    }
  }

  void submit_all() {
    for (std::size_t j = 0; j < workload.jobs.size(); ++j) shell.submit(JobId(j), workload.jobs[j]);
  }

  /// Checks that nothing of the jobs is left.
  void run_all() {
    submit_all();
    shell.run();
    EXPECT_EQ(host.in_use(), 0u);
  }
  void expect_done(JobId job) const {
    EXPECT_EQ(heard.ends.at(job), JobEnd::done) << heard.reasons.at(job);
    EXPECT_EQ(heard.steps.at(job), workload.jobs[job.index()]->max_steps);
  }
  void expect_all_done() const {
    for (std::size_t j = 0; j < workload.jobs.size(); ++j) expect_done(JobId(j));
  }
  void expect_failed(JobId job, const std::string& reason) const {
    EXPECT_EQ(heard.ends.at(job), JobEnd::failed);
    EXPECT_EQ(heard.reasons.at(job), reason);
  }

  static std::uint64_t planned_ops(const JobPlan& plan) {
    std::uint64_t ops = 0;
    for (std::int64_t step = 0; step <= plan.max_steps; ++step) {
      ops += plan.programs[plan.step_kind(step).index()]->ops.size();
    }
    return ops;
  }

  std::uint64_t planned_ops() const {
    std::uint64_t ops = 0;
    for (const auto& plan : workload.jobs) ops += planned_ops(*plan);
    return ops;
  }

  /// Adds a device with the budget of the first.
  Device& new_device() {
    spare.push_back(make_cpu_device("spare", workload.config.device_budgets.front(),
                                    {.split = workload.config.split}));
    return *spare.back();
  }

  static MakeDevice make_cpus(std::vector<CpuSwitches> switches, const MemorySplit& split) {
    return [switches = std::move(switches), split](std::size_t d, Bytes budget) {
      CpuSwitches own = d < switches.size() ? switches[d] : CpuSwitches{};
      own.split = split;
      return make_cpu_device("cpu:" + std::to_string(d), budget, own);
    };
  }
  std::vector<std::unique_ptr<Device>> make_devices(const MakeDevice& make) const {
    std::vector<std::unique_ptr<Device>> made;
    for (std::size_t d = 0; d < workload.config.device_budgets.size(); ++d) {
      made.push_back(make(d, workload.config.device_budgets[d]));
    }
    return made;
  }
  std::vector<Device*> pointers() const {
    std::vector<Device*> found;
    for (const auto& device : devices) found.push_back(device.get());
    return found;
  }

  Workload workload;
  std::vector<std::unique_ptr<Device>> devices, spare;
  MemoryStore home_store;
  HostArena host;
  ThreadPool pool;
  CheckingRunner runner;
  Heard heard;
  Shell shell;
};

}  // namespace spillway::testing
