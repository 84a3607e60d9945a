#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "models/base/reason.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/compute/counting_allocator.h"
#include "trainer/compute/range_runner.h"
#include "trainer/compute/torch_gpu.h"
#include "trainer/session/session_impl.h"

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

/// An op had no room for its activations, though its plan reserved what the pilot measured.
Error needs_more_than_measured(const OutOfMemory& error, const ModelSpec& model,
                               const LayerRange& layers, const std::filesystem::path& cache) {
  const std::string &first = model.layers[at(layers.begin)].name,
                    &last = model.layers[at(layers.end) - 1].name;
  const std::string which =
      first == last ? "layer " + first + " needs" : "layers " + first + " to " + last + " need";
  return Error(which + " more memory than was measured (" + error.what() + "); " +
               (cache.empty() ? "" : "delete '" + cache.string() + "', ") +
               "start the trial again, and it is measured anew");
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
  const SessionTrial& trial = *trials[call.job.index()];
  try {
    return trial.job->run_op(call);
  } catch (const OutOfMemory& error) {
    if (error.tier != Tier::device) throw;
    throw needs_more_than_measured(error, trial.model->spec, call.program->ops[at(call.op)].layers,
                                   config.pilot_cache);
  }
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
  std::unique_lock lock(mutex);
  trial.releasing = true;
  const std::int64_t steps = trial.result.steps;
  const bool goes_on_later = end == JobEnd::stopped && trial.stopped_because.empty();
  lock.unlock();
  if (goes_on_later && trial.job->home()) {
    trial.job->complete_updates(steps);
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
