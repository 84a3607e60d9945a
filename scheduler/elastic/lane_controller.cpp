#include "scheduler/elastic/lane_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

std::string text_of(std::string_view rule, int lanes, bool is_known) {
  return fmt::format("{}: {} {} {}", rule, is_known ? "continues with" : "tries", lanes,
                     lanes == 1 ? "device" : "devices");
}

std::string text_of(const std::vector<DeviceId>& avoided) {
  if (avoided.empty()) return "straggler: avoids no device";
  std::vector<std::uint32_t> numbers;
  for (DeviceId id : avoided) numbers.push_back(id.value);
  return fmt::format("straggler: avoids device {}", fmt::join(numbers, ", "));
}

}  // namespace

LaneController::LaneController(std::shared_ptr<const Allocator> allocator, int num_devices)
    : num_devices_(num_devices) {
  if (allocator) sharing_.emplace(std::move(allocator), num_devices);
}

void LaneController::arrive(const LaneDemand& demand, double now_s) {
  Job job{.demand = demand, .arrived_s = now_s, .committed_s = now_s, .asks = demand.most_lanes};
  if (!sharing_) job.given = job.runs_on = demand.lanes;
  if (!is_shared(job)) job.wanted = demand.lanes;
  if (!demand.fixed && !demand.rules.empty()) {
    job.scaler.emplace(demand.rules, sizes_up_to(demand.most_lanes, demand.sizes), demand.lanes);
  }
  if (is_shared(job)) {
    sharing_->arrive({.job = demand.job,
                      .priority = demand.priority,
                      .arrival_s = now_s,
                      .most_lanes = demand.most_lanes,
                      .remaining_s = static_cast<double>(demand.max_steps - demand.first_step) /
                                     demand.speed.speed(1),
                      .speed = demand.speed});
  }
  jobs_.emplace(demand.job, std::move(job));
  if (sharing_) share_rest();
}

void LaneController::committed(const StepCommitted& step, double now_s) {
  const auto found = jobs_.find(step.job);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  const double step_s = now_s - std::exchange(job.committed_s, now_s);
  const double left = static_cast<double>(job.demand.max_steps - step.step);
  const bool is_whole = std::exchange(job.whole_step, true) && step_s > 0;
  if (is_whole) measure(job, step_s, left);
  job.last_step_on = job.runs_on;
  if (!job.scaler) return;
  for (const DeviceWork& work : step.work) {
    if (work.busy_s > 0) job.scaler->observe_device(work.device, work.planned_s / work.busy_s);
  }
  if (!job.resizing && left > 0) take(job, job.scaler->decide(now_s - job.arrived_s, left));
}

/// Ignores the first step after a change of lanes, which includes the cost of the change.
void LaneController::measure(Job& job, double step_s, double steps_left) {
  if (job.scaler) job.scaler->observe_step(job.runs_on, 1, step_s);
  if (!is_shared(job) || job.last_step_on != job.runs_on) return;
  sharing_->committed(job.demand.job, job.runs_on, step_s, steps_left);
  const auto& jobs = sharing_->jobs();
  const auto known = std::ranges::find(jobs, job.demand.job, &Contender::job);
  if (known->speed.num_observed(job.runs_on) == kStepsToMeasure) due_ = true;
}

void LaneController::take(Job& job, const Advice& advice) {
  const int lanes = std::min(advice.lanes.value_or(job.demand.most_lanes), job.demand.most_lanes);
  if (advice.avoid != job.avoids && advice.avoid.size() < at(num_devices_)) {
    job.wants_to_avoid = advice.avoid;
    job.reason = text_of(advice.avoid);
    due_ = true;
  }
  if (advice.rule.empty()) return;
  if (sharing_) {
    if (std::exchange(job.asks, lanes) == lanes) return;
    sharing_->ask(job.demand.job, lanes);
    due_ = true;
  } else if (lanes != job.given) {
    const bool is_known = job.scaler->speed().num_observed(lanes) >= kStepsToMeasure;
    job.wanted = lanes;
    job.reason = text_of(advice.rule, lanes, is_known);
    due_ = true;
  }
}

void LaneController::redone(JobId id) {
  if (const auto job = jobs_.find(id); job != jobs_.end()) job->second.whole_step = false;
}

void LaneController::resized(JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  job.resizing = false;
  if (job.given > 0) job.runs_on = job.given;
  if (!is_shared(job)) return;
  sharing_->resized(id);
  due_ = true;
}

void LaneController::end(JobId id) {
  const auto job = jobs_.find(id);
  if (job == jobs_.end()) return;
  if (is_shared(job->second)) sharing_->end(id);
  jobs_.erase(job);
  if (sharing_) share_rest();
}

void LaneController::fix(JobId id, int lanes) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (is_shared(job)) sharing_->end(id);
  job.demand.fixed = true;
  job.scaler.reset();
  job.wanted = lanes;
  job.wants_to_avoid.clear();
  job.reason = "asked for";
  due_ = true;
  if (sharing_) share_rest();
}

void LaneController::limit(JobId id, int most_lanes) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second.demand.fixed) return;
  Job& job = found->second;
  if (std::exchange(job.demand.most_lanes, most_lanes) == most_lanes) return;
  if (job.scaler) job.scaler->set_sizes(sizes_up_to(most_lanes, job.demand.sizes));
  if (sharing_) {
    job.asks = job.scaler ? std::min(job.asks, most_lanes) : most_lanes;
    sharing_->ask(id, job.asks);
  } else if (job.scaler && job.wanted > most_lanes) {
    job.wanted = most_lanes;
    job.reason = "as many as devices can run it";
  }
  due_ = true;
}

void LaneController::set_num_devices(int num_devices) {
  num_devices_ = num_devices;
  due_ = true;
  for (auto& [id, job] : jobs_) {
    if (job.wants_to_avoid.size() >= at(num_devices)) job.wants_to_avoid.clear();
  }
  if (sharing_) share_rest();
}

void LaneController::forget_device(DeviceId device) {
  for (auto& [id, job] : jobs_) {
    std::erase(job.wants_to_avoid, device);
    std::erase(job.avoids, device);
    if (job.scaler) job.scaler->forget_device(device);
  }
}

/// Jobs with a fixed number of lanes come first.
void LaneController::share_rest() {
  int left = num_devices_;
  for (const auto& [id, job] : jobs_) left -= job.demand.fixed ? job.wanted : 0;
  sharing_->set_num_devices(std::max(left, 1));
  due_ = true;
}

void LaneController::take_shares() {
  for (const Sharing::Change& change : sharing_->decide()) {
    Job& job = jobs_.at(change.job);
    job.wanted = change.lanes;
    job.reason = sharing_->allocator();
  }
}

LaneChange LaneController::change(Job& job) {
  LaneChange change{.job = job.demand.job,
                    .before = std::exchange(job.given, job.wanted),
                    .lanes = job.wanted,
                    .avoid = job.avoids = job.wants_to_avoid,
                    .reason = std::exchange(job.reason, {})};
  job.resizing = change.before > 0 && change.lanes > 0;
  if (!job.resizing) job.whole_step = false;
  if (change.before == 0) job.runs_on = change.lanes;
  return change;
}

std::vector<LaneChange> LaneController::decide() {
  std::vector<LaneChange> changes;
  due_ = false;
  if (num_devices_ == 0) return changes;
  if (sharing_) take_shares();
  for (auto& [id, job] : jobs_) {
    if (job.wanted == job.given && job.wants_to_avoid == job.avoids) continue;
    changes.push_back(change(job));
  }
  return changes;
}

}  // namespace spillway
