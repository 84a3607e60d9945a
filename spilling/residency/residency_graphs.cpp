#include <algorithm>

#include "spilling/residency/residency_manager.h"

/// The graphs that ops keep on devices.
namespace spillway {

void ResidencyManager::hold_for(DeviceId id, BufferRef graph, const std::vector<int>& needed) {
  ShortList<int>& held = jobs_[graph.job.index()].graphs[graph.buffer];
  for (int b : needed) {
    ++find(id, {graph.job, b})->leases;
    held.push_back(b);
  }
}

void ResidencyManager::free_graph(ResidencyOwner& owner, DeviceId id, BufferRef graph) {
  DeviceCopies& device = devices_[id.index()];
  Resident* entry = device.copies.find(graph);
  owner.touch(id);
  device.copies.set_evicting(*entry, true);
  ++device.num_transfers;
  entry->draining = owner.start_drop(id, graph);
}

bool ResidencyManager::drop_graphs(ResidencyOwner& owner, JobId job) {
  for (const auto& [b, held] : jobs_[job.index()].graphs) {
    for (DeviceId id : state({job, b}).holders) free_graph(owner, id, {job, b});
  }
  return !jobs_[job.index()].graphs.empty();
}

void ResidencyManager::end_drop(ResidencyOwner& owner, DeviceId id, BufferRef graph) {
  DeviceCopies& device = devices_[id.index()];
  --device.num_transfers;
  device.copies.find(graph)->draining = 0;
  drop(owner, id, graph);
}

int ResidencyManager::graphs_that_need(DeviceId id, BufferRef ref) const {
  int graphs = 0;
  for (const auto& [b, held] : jobs_[ref.job.index()].graphs) {
    const bool is_here = holds(id, {ref.job, b});
    graphs += is_here ? static_cast<int>(std::ranges::count(held, ref.buffer)) : 0;
  }
  return graphs;
}

}  // namespace spillway
