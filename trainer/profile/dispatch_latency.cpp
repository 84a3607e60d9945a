#include "trainer/profile/dispatch_latency.h"

#include <tbb/global_control.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "scheduler/plan/lower.h"
#include "spilling/tiers/memory_store.h"
#include "trainer/compute/tbb_pool.h"
#include "trainer/profile/host_rates.h"
#include "trainer/runtime/shell.h"

namespace spillway {
namespace {

constexpr int kSteps = 60;
/// Long enough that waiting threads sleep, as in training.
constexpr std::chrono::microseconds kOp(500);

/// Ops that only take time. After each, its sum is copied to the host, then a host op follows.
class LatencyProbe final : public OpRunner {
 public:
  std::vector<double> seconds;

  void admit(JobId, const Home&) override {}
  void warm(Device&) override {}
  Keep run_op(const OpCall&) override {
    const auto begin = Clock::now();
    while (Clock::now() < begin + kOp) {
    }
    op_ended_ = Clock::now();
    return {};
  }
  void run_host_op(const HostCall&) override {
    const auto ended = op_ended_.exchange({});
    if (ended == Clock::time_point()) return;  // not the first host op after the op
    const std::chrono::duration<double> passed = Clock::now() - ended;
    seconds.push_back(passed.count() / 2);  // two dispatches: the copy and this host op
  }

 private:
  std::atomic<Clock::time_point> op_ended_ = Clock::time_point();
};

class NullObserver final : public ShellObserver {
  void on_started(JobId) override {}
  void on_committed(const StepCommitted&) override {}
  void on_rested(const JobRested&) override {}
  void on_interrupted(const JobInterrupted&) override {}
  void on_redone(JobId, std::int64_t) override {}
  void on_resized(JobId, const JobPlan&) override {}
  void on_ended(JobId, JobEnd, const std::string&) override {}
  void on_device_joined(DeviceId) override {}
  void on_device_left(DeviceId, bool, const std::string&) override {}
};

/// One layer with one weight, and one op per step.
std::shared_ptr<const JobPlan> smallest_job() {
  ModelSpec model;
  model.family = "smallest";
  model.params.push_back({"weight", {DType::f32, {{"channel", 1}}}});
  model.edges.push_back({"batch", {DType::i64, {{"sample", 1}}}, -1, false});
  model.layers.push_back({"layer", "smallest", {0}, {0}, {}});
  const Profile profile{.layers = {{.forward_s = 1e-6, .backward_s = 1e-6}}};
  return std::make_shared<JobPlan>(
      lower(model, profile, {.max_steps = kSteps}, {{0, 1}}, /*vn_major=*/true));
}

}  // namespace

double measure_dispatch_latency() {
  constexpr Bytes kMemory = 1_MiB;
  const auto device = make_cpu_device("latency", kMemory);
  MemoryStore store(*device);
  HostArena host(kMemory, store);
  // Leaves the number of TBB's threads as it is: a session may be training.
  using Control = tbb::global_control;
  const std::size_t threads = Control::active_value(Control::max_allowed_parallelism);
  TbbPool pool(std::max(1, static_cast<int>(threads) - 1));
  LatencyProbe measured;
  NullObserver observer;
  Shell shell({.device_budgets = {kMemory}, .host_budget = kMemory, .policy = make_policy("fifo")},
              {device.get()}, host, pool, measured, observer);
  shell.submit(JobId(0), smallest_job());
  shell.run();
  return expected(measured.seconds);
}

}  // namespace spillway
