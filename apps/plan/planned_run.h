#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/os/host_memory.h"
#include "runs/config/sweep.h"
#include "runs/folder/machine_fit.h"
#include "spillway/error.h"
#include "spillway/session.h"

namespace spillway {

/// Ops of a run that Session::simulate() simulates in about a second.
inline constexpr double kQuickOps = 1e5;

/// What a plan is made from.
struct PlanInput {
  std::string config_file;
  std::vector<std::string> overrides;  ///< "a.b=c"
  bool estimate = false;               ///< no pilot: costs from the layers' shapes
  std::filesystem::path pilot_cache;   ///< where measured costs are kept; empty: nowhere
  HostMemory machine = host_memory();  ///< which the run must fit
};

/// A planned trial; `plan` and `parameters` are set only if it fits.
struct PlannedRow {
  std::string name;
  TrainConfig train;  ///< without open numbers
  std::optional<DoesNotFit> misfit;
  TrialPlan plan;
  std::int64_t parameters = 0;
  std::uint64_t samples = 0;  ///< of an epoch
  std::int64_t steps = 0;     ///< simulated: early stopping may end a trial before max_steps
  bool is_misfit() const { return misfit.has_value(); }
  Bytes weights_bytes() const { return static_cast<Bytes>(parameters) * sizeof(float); }
};

/// What a trial takes of each tier. What is unknown, because another tier is too small, is empty.
struct TierBytes {
  std::optional<Bytes> device;  ///< the smallest budget of a device that fits
  std::optional<Bytes> host;    ///< its training state, unless it lies in files
  std::optional<Bytes> disk;    ///< the same in files, checkpoints, final weights
};

TierBytes tiers_of(const PlannedRow& row, const RunConfig& config);

/// A planned run.
struct PlannedRun {
  std::vector<Trial> trials;
  std::vector<TrialConfig> configs;  ///< of all trials
  SessionConfig session_config;
  std::unique_ptr<Session> session;
  std::vector<PlannedRow> rows;  ///< of all trials; those that fit have consecutive ids
  MemoryNeed memory;
  HostMemory machine;
  std::vector<DiskUse> disks;  ///< that of output_dir first

  const RunConfig& config() const { return trials.front().config; }
  /// That of a trial that fits, in the session.
  JobId id_of(std::size_t trial) const;
  /// The trial that does not fit and needs most; nothing if all fit.
  const PlannedRow* largest_misfit() const;
  bool fits_memory() const { return memory.total() <= machine.total; }
  bool fits() const;
  /// Runs the trials that fit on a virtual clock and sets their steps. Throws as
  /// Session::simulate().
  RunResult simulate(double most_ops);
};

/// Plans all trials, or only the one with this number. Throws ConfigErrors or ConfigError.
PlannedRun plan_run(const PlanInput& input, std::optional<std::size_t> only = std::nullopt);

}  // namespace spillway
