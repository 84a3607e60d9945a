#include "runs/folder/machine_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/os/disk.h"
#include "core/os/file_system.h"
#include "runs/folder/output_folder.h"

namespace spillway {
namespace {

/// Above this number of different sums there is nearly always one that fills the budget.
constexpr std::size_t kMostSums = 4096;

Bytes boundaries_of(const TrialPlan& plan) {
  return plan.home_bytes - plan.home_weights_bytes - plan.home_moments_bytes - plan.home_sums_bytes;
}

Bytes unit_of(const TrialPlan& plan) {
  return plan.unit_weights_bytes + plan.unit_sums_bytes + plan.unit_activations_bytes +
         plan.unit_boundaries_bytes;
}

/// The most that a device without a budget would hold: the running unit, the next one, and
/// boundaries that wait for a later op. Of a single trial with one unit the next is the same one.
Bytes most_on_a_device(const std::vector<TrialPlan>& plans) {
  Bytes unit = 0, boundaries = 0;
  bool has_next = plans.size() > 1;
  for (const TrialPlan& plan : plans) {
    unit = std::max(unit, unit_of(plan));
    boundaries += boundaries_of(plan);
    has_next |= plan.num_shards > 1 && !plan.shards_stay;
  }
  return (has_next ? 2 : 1) * unit + boundaries;
}

std::string parts_of(const MemoryNeed& need) {
  const Bytes devices = need.total() - need.homes;
  if (need.homes == 0) return "for devices";
  if (devices == 0) return "for training state";
  return fmt::format("{} for training state, {} for devices", format_bytes(need.homes),
                     format_bytes(devices));
}

}  // namespace

Bytes MemoryNeed::total() const { return std::accumulate(devices.begin(), devices.end(), homes); }

Bytes most_at_once(const std::vector<Bytes>& homes, Bytes host_memory) {
  const Bytes all = std::accumulate(homes.begin(), homes.end(), Bytes{0});
  if (all <= host_memory) return all;
  std::set<Bytes> sums{0};
  for (const Bytes home : homes) {
    std::set<Bytes> larger;
    for (const Bytes sum : sums) {
      if (sum + home <= host_memory) larger.insert(sum + home);
    }
    sums.merge(larger);
    if (sums.size() > kMostSums) return host_memory;
  }
  return *sums.rbegin();
}

/// The most homes that host memory holds at once, and what they share.
static Bytes most_homes(const std::vector<TrialPlan>& plans, Bytes host_memory) {
  std::vector<Bytes> homes;
  for (const TrialPlan& plan : plans) homes.push_back(plan.home_bytes);
  const Bytes shared = std::min(shared_bytes_of(plans), host_memory);
  return shared + most_at_once(homes, host_memory - shared);
}

MemoryNeed memory_need(const SessionConfig& session, const std::vector<TrialPlan>& plans) {
  MemoryNeed need;
  if (session.offload_path.empty()) need.homes = most_homes(plans, session.host_memory);
  const Bytes most = most_on_a_device(plans);
  for (const DeviceConfig& device : session.devices) {
    need.devices.push_back(device.kind == DeviceKind::cpu ? std::min(device.memory, most) : 0);
  }
  return need;
}

std::vector<DiskUse> disk_use(const RunConfig& config, const std::vector<TrialPlan>& plans) {
  DiskUse outputs{.folder = config.output_dir,
                  .free = OutputFolder(config.output_dir).free_bytes()};
  for (const TrialPlan& plan : plans) outputs.checkpoints += plan.checkpoint_bytes;
  const auto& offload_path = config.session.offload_path;
  if (offload_path.empty()) return {outputs};
  const Bytes at_once = most_homes(plans, config.session.host_memory);
  if (share_disk(offload_path, outputs.folder)) {
    outputs.homes = at_once;
    return {outputs};
  }
  return {outputs,
          {.folder = offload_path,
           .homes = at_once,
           .free = posix_file_system().free_bytes(existing_part(offload_path))}};
}

MachineTooSmall::MachineTooSmall(const MemoryNeed& need, const HostMemory& machine)
    : DoesNotFit("the run", Tier::host, need.total(), machine.total),
      message_(
          fmt::format("the run fits its budgets, not this machine: it needs {} of memory ({}), "
                      "the machine has {}",
                      format_bytes(need.total()), parts_of(need), format_bytes(machine.total))) {}

void require_memory(const MemoryNeed& need, const HostMemory& machine) {
  if (need.total() > machine.total) throw MachineTooSmall(need, machine);
}

std::string warning_of_memory(const MemoryNeed& need, const HostMemory& machine) {
  if (need.total() > machine.total || need.total() <= machine.available) return "";
  return fmt::format(
      "the run needs {} of memory ({}), but other programs leave only {} of {}; end some, or the "
      "system may end the run",
      format_bytes(need.total()), parts_of(need), format_bytes(machine.available),
      format_bytes(machine.total));
}

}  // namespace spillway
