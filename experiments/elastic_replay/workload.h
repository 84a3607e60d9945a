#pragma once

#include <string>
#include <vector>

/// The jobs of a published cluster run.
namespace spillway::experiments {

/// A row of the table; see README.md.
struct ReplayJob {
  double arrival_s = 0;
  int priority = 1;
  int demand = 1;         ///< number of devices that it asks for
  double service_s = 0;   ///< alone on `demand` devices, start-up included
  double start_up_s = 0;  ///< part of it
  double exponent = 1;    ///< speed on n devices is (n / demand)^exponent
  double priority_queue_s = 0, priority_jct_s = 0, wfs_queue_s = 0, wfs_jct_s = 0;  ///< measured

  double speed(int devices) const;  ///< relative to that on `demand` devices
  /// Smallest device time with which the job can finish within `window_s` of its arrival on at most
  /// `demand` devices; infinite if it cannot. Any real number of devices, at least one.
  double least_device_s(double window_s) const;
};

/// Throws IoError, or ConfigError if a line is not a job.
std::vector<ReplayJob> read_workload(const std::string& path);

/// A lower bound for every schedule that gives a job at most its demand: a job's device time grows
/// with the number of devices, because no exponent exceeds 1, and all jobs that arrive from some
/// moment on must fit into the devices from that moment on. The smallest time that satisfies this
/// for every arrival.
double shortest_makespan_s(const std::vector<ReplayJob>& jobs, int num_devices);

}  // namespace spillway::experiments
