#include <c10/util/Exception.h>

#include <algorithm>

#include "core/error.h"
#include "models/reason.h"
#include "trainer/counting_allocator.h"
#include "trainer/range_runner.h"
#include "trainer/session_impl.h"
#include "trainer/torch_gpu.h"

namespace spillway {
namespace {

/// What LibTorch throws says where in its code that was: nothing to show.
template <typename Work>
void without_stack(const Work& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    throw Error(reason_of(error));
  }
}

}  // namespace

void Session::Impl::admit(JobId id, std::byte* home) {
  SessionTrial& trial = *trials[id.index()];
  without_stack([&] { trial.job->admit(home); });
  if (!trial.checkpoints) return;
  trial.checkpoints->attach(trial.job->places(), home, trial.job->gate());
}

OpRunner::Keep Session::Impl::run_op(const OpCall& call) {
  const MeterScope scope(call.device->activations(), call.device->gpu() >= 0);
  return trials[call.job.index()]->job->run_op(call);
}

void Session::Impl::run_host_op(const HostCall& call) {
  // Before the weights are handed out: where that fails the last checkpoint has them.
  const bool finishes = call.program->host_ops[at(call.op)].kind == HostOpKind::finish;
  if (finishes) save_last(call.job);
  without_stack([&] { trials[call.job.index()]->job->run_host_op(call); });
}

void Session::Impl::release(JobId id, JobEnd end) {
  SessionTrial& trial = *trials[id.index()];
  if (!trial.checkpoints) return;
  if (end == JobEnd::stopped && trial.stopped_because.empty() && trial.job->home()) {
    trial.job->complete_updates(trial.result.steps);
    save_last(id);
  }
  trial.job->gate().cancel();
  trial.checkpoints->wait();
}

void Session::Impl::warm(Device& device) {
  if (device.gpu() >= 0) return bind_torch_thread(device.gpu(), device.compute().stream());
  Bytes activations = 0;
  {
    const std::lock_guard lock(mutex);
    for (const auto& trial : trials) {
      if (trial->ended()) continue;
      activations = std::max(activations, trial->planned.summary.unit_activations_bytes);
    }
  }
  warm_up_thread(activations);
}

}  // namespace spillway
