#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "models/base/reason.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/compute/range_runner.h"
#include "trainer/session/session_impl.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/torch_gpu.h"

namespace spillway {
namespace {

/// Removes the stack trace from an error of LibTorch.
template <typename Work>
void without_stack(const Work& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    throw Error(reason_of(error));
  }
}

/// An op had too little memory for its activations, though its plan reserved what the pilot
/// measured.
Error needs_more_than_measured(const OutOfMemory& error, const ModelSpec& model,
                               const LayerRange& layers, const std::filesystem::path& cache) {
  const std::string &first = model.layers[at(layers.begin)].name,
                    &last = model.layers[at(layers.end) - 1].name;
  const std::string which = first == last ? fmt::format("layer {} needs", first)
                                          : fmt::format("layers {} to {} need", first, last);
  const std::string remedy = cache.empty() ? "" : fmt::format("delete '{}', ", cache.string());
  return Error(
      fmt::format("{} more memory than measured ({}); {}start the trial again to measure it again",
                  which, error.what(), remedy));
}

}  // namespace

void Session::Impl::admit(JobId id, const Home& home) {
  SessionTrial& trial = trial_of_run(id);
  without_stack([&] { trial.job->admit(home); });
  if (!trial.checkpoints) return;
  trial.checkpoints->attach(trial.job->places(), home, trial.job->gate(),
                            trial.sharded.remote.get());
}

/// GPUs copy from memory that is locked, which mapped files are not.
std::shared_ptr<std::byte> Session::Impl::find(JobId id, const SharedBlock& block) {
  return config.has_gpus() ? nullptr : trial_of_run(id).job->map(block);
}

OpRunner::Keep Session::Impl::run_op(const OpCall& call) {
  const MeterScope scope(call.device->activations(), call.device->gpu() >= 0);
  const SessionTrial& trial = trial_of_run(call.job);
  return or_fail_on_hosts(call.job, [&] {
    try {
      return trial.job->run_op(call);
    } catch (const OutOfMemory& error) {
      if (error.tier != Tier::device) throw;
      throw needs_more_than_measured(error, trial.model->spec,
                                     call.program->ops[at(call.op)].layers, config.pilot_cache);
    } catch (...) {
      call.device->check();  // an op of a lost device is repeated elsewhere
      throw;
    }
  });
}

void Session::Impl::run_host_op(const HostCall& call) {
  or_fail_on_hosts(call.job, [&] {
    const SessionTrial& trial = trial_of_run(call.job);
    const bool is_last = call.program->host_ops[at(call.op)].kind == HostOpKind::finish;
    if (is_last) {
      require_unchanged_files(call.job);
      // Before the weights are written: if that fails, the last checkpoint has them.
      save_last(call.job);
    }
    without_stack([&] {
      if (is_last && trial.sharded.problem) std::rethrow_exception(trial.sharded.problem);
      trial.job->run_host_op(call);
    });
  });
}

/// Throws if a file has changed from which the trial's memory is mapped.
void Session::Impl::require_unchanged_files(JobId id) {
  for (const SharedBlock& block : trial_of_run(id).plan->layout.shared) find(id, block);
}

/// Nothing of the trial runs except the caller.
void Session::Impl::save_last(JobId id) {
  TrialCheckpoints* const checkpoints = trial_of_run(id).checkpoints.get();
  if (!checkpoints) return;
  TrialHistory last;
  {
    const MutexLock lock(mutex);
    const SessionTrial& saved = trial(id);
    if (saved.result.steps == saved.first_step) return;
    last = saved.history;
  }
  checkpoints->save_last(std::move(last));
}

void Session::Impl::release(JobId id, JobEnd job_end) {
  const SessionTrial& released = trial_of_run(id);
  std::int64_t steps = 0;
  bool resumes_later = false;
  {
    const MutexLock lock(mutex);
    SessionTrial& ending = trial(id);
    const bool early = ending.lifecycle.phase() == TrialPhase::stopping_early;
    if (!early) ending.lifecycle.enter(TrialPhase::releasing);
    resumes_later = job_end == JobEnd::stopped && !early;
    steps = ending.result.steps;
  }
  TrialCheckpoints* const checkpoints = released.checkpoints.get();
  if (checkpoints && resumes_later && released.job->home() && !released.sharded.is_used()) {
    released.job->complete_updates(steps);
    save_last(id);
  }
  // All hosts fail together at a commit, and go on with other trials; they still send.
  if (checkpoints && released.job->failed_to_commit()) checkpoints->wait();
  released.job->gate().cancel();
  if (released.sharded.remote) released.sharded.remote->drop();
  if (released.sharded.sender) released.sharded.sender->wait();
  if (checkpoints) checkpoints->wait();
}

void Session::Impl::warm(Device& device) {
  if (device.gpu() >= 0) return bind_torch_thread(device.gpu(), device.compute().stream());
  Bytes activations = 0;
  {
    const MutexLock lock(mutex);
    for (const auto& trial : trials) {
      if (trial->ended()) continue;
      activations = std::max(activations, trial->planned.summary.unit_activations_bytes);
    }
  }
  warm_up_thread(activations);
}

}  // namespace spillway
