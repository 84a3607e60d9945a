#include "scheduler/virtual_shell.h"

#include <algorithm>
#include <utility>

namespace spillway {

VirtualShell::VirtualShell(EngineConfig config, VirtualCosts costs)
    : engine_(config),
      costs_(costs),
      compute_free_s_(config.device_budgets.size()),
      to_device_free_s_(config.device_budgets.size()),
      to_host_free_s_(config.device_budgets.size()),
      worker_free_s_(at(costs.host_workers)) {}

void VirtualShell::submit(JobId job, std::shared_ptr<const JobPlan> plan) {
  plans_.push_back(plan);
  std::vector<Action> actions;
  engine_.submit(job, std::move(plan), actions);
  carry_out(actions);
}

void VirtualShell::stop(JobId job) {
  std::vector<Action> actions;
  engine_.stop(job, actions);
  carry_out(actions);
}

bool VirtualShell::advance() {
  if (ends_.empty()) return false;
  const auto next = in_flight_.find(ends_.top().id);
  const Done done = std::move(next->second);
  in_flight_.erase(next);
  ends_.pop();
  now_s_ = done.finished_s;
  if (on_completion) on_completion(done);
  std::vector<Action> actions;
  engine_.on_done(done, actions);
  carry_out(actions);
  return true;
}

void VirtualShell::carry_out(std::vector<Action>& actions) {
  for (const Action& action : actions) {
    if (on_action) on_action(action);
    std::visit([this](const auto& a) { perform(a); }, action);
  }
}

void VirtualShell::complete(ActionId id, JobId job, double start_s, double duration_s,
                            Bytes activations) {
  Done done{id, start_s, start_s + duration_s, activations, ""};
  if (const auto failure = failures_.find(job); failure != failures_.end()) {
    done.error = failure->second;
    failures_.erase(failure);
  }
  ends_.push({done.finished_s, id});
  in_flight_.emplace(id, std::move(done));
}

void VirtualShell::perform(const StartOp& op) {
  double start_s = std::max(now_s_, compute_free_s_[op.device.index()]);
  for (ActionId id : op.after) {
    if (const auto found = in_flight_.find(id); found != in_flight_.end()) {
      start_s = std::max(start_s, found->second.finished_s);
    }
  }
  const OpSpec& spec = plans_[op.job.index()]->programs[op.flavor]->ops[at(op.op)];
  const double duration_s = spec.cost_s * slowdown(op.device) * crowding_at(start_s, op.device);
  compute_free_s_[op.device.index()] = start_s + duration_s;
  complete(op.id, op.job, start_s, duration_s, spec.workspace);
}

/// Grows evenly with the number of other devices that compute when an op starts.
double VirtualShell::crowding_at(double time_s, DeviceId device) const {
  double others = 0;
  for (std::size_t d = 0; d < compute_free_s_.size(); ++d) {
    if (d != device.index() && compute_free_s_[d] > time_s) ++others;
  }
  if (others == 0) return 1;
  return 1 + (costs_.crowding - 1) * others / static_cast<double>(compute_free_s_.size() - 1);
}

double VirtualShell::slowdown(DeviceId device) const {
  return device.index() < costs_.slowdown.size() ? costs_.slowdown[device.index()] : 1;
}

double VirtualShell::copy_rate(DeviceId device) const {
  const auto& links = costs_.link_bytes_per_s;
  const double link = device.index() < links.size() ? links[device.index()] : 0;
  return link > 0 ? std::min(link, costs_.copy_bytes_per_s) : costs_.copy_bytes_per_s;
}

void VirtualShell::perform(const StartCopy& copy) {
  auto& queue = copy.direction == CopyDirection::to_device ? to_device_free_s_ : to_host_free_s_;
  double& free_s = queue[copy.device.index()];
  const double start_s = std::max(now_s_, free_s);
  const double duration_s =
      costs_.copy_latency_s + static_cast<double>(copy.bytes) / copy_rate(copy.device);
  free_s = start_s + duration_s;
  complete(copy.id, copy.job, start_s, duration_s, 0);
}

void VirtualShell::perform(const StartHostOp& op) {
  auto worker = std::ranges::min_element(worker_free_s_);
  const double start_s = std::max(now_s_, *worker);
  const double cost_s = plans_[op.job.index()]->programs[op.flavor]->host_ops[at(op.op)].cost_s;
  *worker = start_s + cost_s;
  complete(op.id, op.job, start_s, cost_s, 0);
}

void VirtualShell::perform(const AdmitJob& admission) {
  complete(admission.id, admission.job, now_s_, costs_.admission_s, 0);
}

}  // namespace spillway
