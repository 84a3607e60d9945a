#include "experiments/support/shared_run.h"

#include <algorithm>
#include <map>
#include <utility>

#include "spillway/error.h"

namespace spillway::experiments {
namespace {

/// A simulated session to which jobs are submitted as they arrive.
class Simulation {
 public:
  Simulation(const SharedRun& run, const std::vector<ElasticJob>& jobs)
      : jobs_(jobs),
        decides_at_commits_(run.decide_at_commits),
        num_devices_(static_cast<int>(run.engine.device_budgets.size())),
        shell_(run.engine, run.costs, RunController({make_allocator(run.allocator), num_devices_}),
               [this](JobId id, int lanes, const std::vector<DeviceId>&) {
                 return std::make_shared<JobPlan>(*job(id).plans[at(lanes - 1)]);
               }) {
    outcome_.jobs.resize(jobs.size());
    shell_.on_action = [this](const Action& action) {
      if (const auto* ended = std::get_if<JobEnded>(&action)) observe(*ended);
      if (decides_at_commits_ && std::holds_alternative<StepCommitted>(action)) shell_.reconsider();
    };
    shell_.on_command = [this](const RunCommand& command) {
      std::visit([this](const auto& c) { observe(c); }, command);
    };
    shell_.resize_delay_s = [this](const ResizeJob& resize) { return delay_s(resize); };
  }

  SharedOutcome run() {
    std::vector<std::size_t> order;
    for (std::size_t j = 0; j < jobs_.size(); ++j) order.push_back(j);
    std::ranges::stable_sort(order, {}, [&](std::size_t j) { return jobs_[j].arrival_s; });
    for (const std::size_t j : order) {
      outcome_.jobs[j].arrived_s = jobs_[j].arrival_s;
      shell_.shell().call_at(jobs_[j].arrival_s, [this, j](VirtualShell&) { submit(j); });
    }
    shell_.run();
    if (num_ended_ != jobs_.size()) throw Error("a job did not end");
    const double device_s = num_devices_ * outcome_.makespan_s;
    outcome_.given_share = given_s_ / device_s;
    for (const DeviceCounters& device : snapshot_of(shell_.shell().engine()).devices) {
      outcome_.busy_share += device.busy_s / device_s;
    }
    return outcome_;
  }

 private:
  const ElasticJob& job(JobId id) const { return jobs_[submitted_[id.index()]]; }
  JobTimes& times(JobId id) { return outcome_.jobs[submitted_[id.index()]]; }
  double now_s() { return shell_.shell().now_s(); }

  void submit(std::size_t j) {
    const ElasticJob& job = jobs_[j];
    const JobId id(submitted_.size());
    submitted_.push_back(j);
    Bytes home = 0;
    for (const auto& plan : job.plans) home = std::max(home, plan->layout.home_bytes);
    shell_.submit({.job = id,
                   .most_lanes = static_cast<int>(job.plans.size()),
                   .priority = job.priority,
                   .max_steps = job.plans[0]->max_steps,
                   .speed = job.speed},
                  job.plans[0], home);
  }

  template <typename Command>
  void observe(const Command&) {}
  void observe(const PauseJob& pause) {
    if (given_.contains(pause.job)) throw Error("a job that runs would have to wait");
  }
  void observe(const ResizeJob& resize) {
    note_given();
    outcome_.resizes += given_.contains(resize.job) ? 1 : 0;
    given_[resize.job] = resize.lanes;
  }
  void observe(const ResumeJob& resume) { times(resume.job).started_s = now_s(); }
  void observe(const JobEnded& ended) {
    if (ended.end != JobEnd::done) throw Error(ended.reason);
    note_given();
    given_.erase(ended.job);
    times(ended.job).ended_s = outcome_.makespan_s = now_s();
    ++num_ended_;
  }

  /// Devices that join go through their start-up first, while the job continues.
  double delay_s(const ResizeJob& resize) {
    const JobTable& now = shell_.shell().engine().job(resize.job);
    if (now.paused) return 0;  // its start
    const bool grows = resize.lanes > now.plan->strategy.tracks;
    return grows ? job(resize.job).growth_s : job(resize.job).shrink_s;
  }

  /// Lanes given so far.
  void note_given() {
    int lanes = 0;
    for (const auto& [id, given] : given_) lanes += given;
    given_s_ += std::min(lanes, num_devices_) * (now_s() - std::exchange(noted_s_, now_s()));
  }

  const std::vector<ElasticJob>& jobs_;
  const bool decides_at_commits_;
  std::vector<std::size_t> submitted_;  // jobs by the engine's number
  int num_devices_;
  ControlledShell shell_;
  SharedOutcome outcome_;
  std::size_t num_ended_ = 0;
  std::map<JobId, int> given_;  // lanes of the jobs that have started and not ended
  double given_s_ = 0, noted_s_ = 0;
};

}  // namespace

SharedOutcome run(const SharedRun& run, const std::vector<ElasticJob>& jobs) {
  return Simulation(run, jobs).run();
}

}  // namespace spillway::experiments
