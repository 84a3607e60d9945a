#include "scheduler/engine/placer.h"

#include <algorithm>
#include <limits>

namespace spillway {

bool Placer::is_needed(const JobTable& job) {
  return job.tracks_a_device == 1 && !job.program->units.empty() && !job.plan->roams() &&
         !job.plan->has_lanes();
}

void Placer::add(JobId job, double priority) {
  waiting_.emplace(-priority, job);
  changed_ = true;
}

void Placer::remove(JobId job) {
  std::erase_if(waiting_, [&](const auto& each) { return each.second == job; });
  for (auto& tracks : placed_) {
    std::erase_if(tracks, [&](const Placed& each) { return each.job == job; });
  }
  changed_ = true;
}

void Placer::end_track(JobId job, int track, DeviceId device) {
  const auto ended = std::erase_if(placed_[device.index()], [&](const Placed& each) {
    return each.job == job && each.track == track;
  });
  changed_ = changed_ || ended > 0;
}

/// A track always has room on a device where no other keeps anything.
bool Placer::has_room(DeviceId id, const TrackNeed& need, const ResidencyManager& memory) const {
  const auto& there = placed_[id.index()];
  TrackNeed all = need;
  for (const Placed& each : there) {
    all.blocks += each.need.blocks;
    all.shared = std::max(all.shared, each.need.shared);
    all.room = std::max(all.room, each.need.room);
  }
  return there.empty() || all.blocks + all.shared + all.room <= memory.on(id).budget();
}

/// Compute of the tracks that are placed there.
double Placer::busy_s(DeviceId id) const {
  double busy_s = 0;
  for (const Placed& each : placed_[id.index()]) busy_s += each.need.cost_s;
  return busy_s;
}

/// The devices that the plan has chosen, or consecutive ones of those that can run the job, so that
/// the busiest has least to compute. Empty: some track has no room.
std::vector<DeviceId> Placer::places_for(const EngineTables& tables, const JobTable& job,
                                         const ResidencyManager& memory) const {
  const std::vector<TrackNeed>& needs = job.program->track_needs;
  std::vector<DeviceId> usable;
  for (std::size_t d = 0; d < placed_.size(); ++d) {
    if (tables.can_run(job, DeviceId(d))) usable.push_back(DeviceId(d));
  }
  const auto& chosen = job.plan->track_devices;
  const auto can_run = [&](DeviceId id) { return tables.can_run(job, id); };
  const bool is_chosen = !chosen.empty() && std::ranges::all_of(chosen, can_run);
  std::vector<DeviceId> best;
  double least_s = std::numeric_limits<double>::infinity();
  for (std::size_t first = 0; first < (is_chosen ? 1 : usable.size()); ++first) {
    std::vector<DeviceId> places;
    double most_s = 0;
    for (std::size_t t = 0; t < needs.size(); ++t) {
      const DeviceId id = is_chosen ? chosen[t] : usable[(first + t) % usable.size()];
      if (!has_room(id, needs[t], memory)) break;
      places.push_back(id);
      most_s = std::max(most_s, busy_s(id) + needs[t].cost_s);
    }
    if (places.size() < needs.size() || most_s >= least_s) continue;
    best = std::move(places);
    least_s = most_s;
  }
  return best;
}

std::vector<JobId> Placer::place(EngineTables& tables, const ResidencyManager& memory) {
  std::vector<JobId> found;
  changed_ = false;
  while (!waiting_.empty()) {
    const JobId id = waiting_.begin()->second;
    JobTable& job = tables.of(id);
    if (is_needed(job)) {  // else devices have left
      job.places = places_for(tables, job, memory);
      if (job.places.empty()) break;
      for (std::size_t t = 0; t < job.places.size(); ++t) {
        placed_[job.places[t].index()].push_back(
            {id, static_cast<int>(t), job.program->track_needs[t]});
      }
    }
    waiting_.erase(waiting_.begin());
    job.waits_for_places = false;
    found.push_back(id);
  }
  return found;
}

}  // namespace spillway
