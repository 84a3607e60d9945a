#pragma once

#include <string>
#include <vector>

/// The jobs of a published cluster run.
namespace spillway::experiments {

/// A row of the table; see README.md.
struct ReplayJob {
  double arrival_s = 0;
  int priority = 1;
  int demand = 1;         ///< devices asked for
  double service_s = 0;   ///< alone on as many as it asks for, start-up included
  double start_up_s = 0;  ///< of which
  double exponent = 1;    ///< speed on n devices is (n / demand)^exponent
  double priority_queue_s = 0, priority_jct_s = 0, wfs_queue_s = 0, wfs_jct_s = 0;  ///< measured

  double speed(int devices) const;  ///< over that on its demand
  /// Least device time in which it can end within `window_s` of its arrival, on no more devices
  /// than it asks for; infinite where it cannot. Any real number of devices, none below one.
  double least_device_s(double window_s) const;
};

/// Throws IoError, or ConfigError where a line is no job.
std::vector<ReplayJob> read_workload(const std::string& path);

/// No schedule that gives a job at most its demand is shorter: a job's device time grows with the
/// number of devices, because no exponent exceeds 1; and whatever comes from some moment on must
/// fit into the devices from that moment on. The least time for which that holds at every arrival.
double shortest_makespan_s(const std::vector<ReplayJob>& jobs, int num_devices);

}  // namespace spillway::experiments
