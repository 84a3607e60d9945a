#include "scheduler/engine/engine_status.h"

#include <algorithm>

#include "scheduler/engine/trace_recorder.h"
#include "scheduler/plan/span_name.h"

namespace spillway {
namespace {

using Kind = InFlight::Kind;

TraceSpan::Track track_of(const InFlight& action) {
  if (action.kind == Kind::op || action.kind == Kind::drop) return TraceSpan::Track::compute;
  if (action.kind != Kind::copy) return TraceSpan::Track::host_pool;
  return track_of(copy_queue(action.direction, action.peer));
}

std::string name_of(const JobTable& job, const InFlight& action) {
  switch (action.kind) {
    case Kind::op:
      return span_name(job.program->ops[at(action.op)]);
    case Kind::drop:
    case Kind::copy:
      return to_string(job.plan->layout.buffers[at(action.buffer)].kind);
    case Kind::host_op:
      return to_string(job.program->host_ops[at(action.op)].kind);
    case Kind::admission:
      return "initial state";
    case Kind::release:
      return "last state";
  }
  return "?";
}

TraceSpan span_of(const JobTable& job, const InFlight& action) {
  const bool copies = action.kind == Kind::copy;
  return {.track = track_of(action),
          .device = action.device,
          .job = action.job,
          .name = name_of(job, action),
          .step = job.step,
          .bytes = copies ? job.plan->layout.buffers[at(action.buffer)].home_bytes : 0};
}

/// For a job whose actions `runs` are in flight.
std::string waits_for(const JobTable& job, const std::vector<TraceSpan::Track>& runs) {
  using Track = TraceSpan::Track;
  const auto any = [&](Track track) { return std::ranges::count(runs, track) > 0; };
  if (job.phase == JobPhase::ended || any(Track::compute)) return "";
  if (job.phase == JobPhase::waiting) return "host memory";
  if (any(Track::to_device) || any(Track::to_host) || any(Track::from_devices)) return "copies";
  if (any(Track::host_pool)) return "host operations";
  if (job.resting) return "other trials or a call";
  return job.paused ? "its share of devices" : "a device";
}

}  // namespace

EngineStatus status_of(const Engine& engine) {
  EngineStatus status;
  status.host_used = engine.host_used();
  for (std::size_t d = 0; d < engine.num_devices(); ++d) {
    status.used.push_back(engine.bytes_in_use(DeviceId(d)));
  }
  std::vector<std::vector<TraceSpan::Track>> runs(engine.num_jobs());
  for (const auto& [id, action] : engine.in_flight()) {
    status.under_way[id] = span_of(engine.job(action.job), action);
    runs[action.job.index()].push_back(track_of(action));
  }
  for (std::size_t j = 0; j < engine.num_jobs(); ++j) {
    const JobTable& job = engine.job(JobId(j));
    EngineStatus::Job& now = status.jobs.emplace_back();
    now.step = job.step;
    now.waits_for = waits_for(job, runs[j]);
    if (job.phase != JobPhase::running) continue;
    for (const TrackState& track : job.tracks) now.tracks.push_back(track.device);
  }
  return status;
}

}  // namespace spillway
