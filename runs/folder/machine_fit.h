#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/os/host_memory.h"
#include "runs/config/config.h"
#include "spillway/error.h"
#include "spillway/session_config.h"
#include "spillway/trial_plan.h"

namespace spillway {

/// The memory of this machine that a run takes at once, by its plans.
struct MemoryNeed {
  Bytes homes = 0;             ///< training state in host memory; 0: it lies in files
  std::vector<Bytes> devices;  ///< of each CPU device, at most its budget; 0 for a GPU
  Bytes total() const;
};

/// Counts what a run uses, not what its budgets allow. `plans`: of all trials that are to train.
MemoryNeed memory_need(const SessionConfig& session, const std::vector<TrialPlan>& plans);

/// The most that homes take at once where `host_memory` admits one trial after the other.
Bytes most_at_once(const std::vector<Bytes>& homes, Bytes host_memory);

/// What a run takes of one disk at its peak; outputs not listed are small.
struct DiskUse {
  std::filesystem::path folder;
  Bytes homes = 0;        ///< of offload_path, of trials that run at once
  Bytes checkpoints = 0;  ///< of all trials
  Bytes weights = 0;      ///< final ones; not required before the run starts
  Bytes free = 0;
  Bytes required() const { return homes + checkpoints; }
  bool fits() const { return required() <= free; }
};

/// Of the disk of the outputs, then of that of offload_path if it is another; without weights.
std::vector<DiskUse> disk_use(const RunConfig& config, const std::vector<TrialPlan>& plans);

/// A run fits its budgets, but the machine has less memory than they allow.
class MachineTooSmall : public DoesNotFit {
 public:
  MachineTooSmall(const MemoryNeed& need, const HostMemory& machine);
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

/// Throws MachineTooSmall. Compares with all memory of the machine: other processes may end.
void require_memory(const MemoryNeed& need, const HostMemory& machine);

/// A warning if the run needs more memory than is free now; else empty.
std::string warning_of_memory(const MemoryNeed& need, const HostMemory& machine);

}  // namespace spillway
