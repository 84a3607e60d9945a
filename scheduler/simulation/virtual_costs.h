#pragma once

#include <cstddef>
#include <vector>

#include "core/device/link.h"

namespace spillway {

/// Contention: threads of one machine slow each other down, because they share execution units,
/// caches and cores.
struct Contention {
  int threads = 0;    ///< of the measurement of `factor`, at most one per core; 0: no contention
  double factor = 1;  ///< slowdown of an op while `threads` threads are busy
  /// The slowdown while `busy` threads, including the op's own, are busy: linear from 1 to
  /// `factor`, then proportional to `busy`.
  double at(double busy) const;
};

/// The costs of actions in a virtual run.
struct VirtualCosts {
  double copy_bytes_per_s = 8e9;         ///< each direction of each device
  std::vector<double> link_bytes_per_s;  ///< by device, a slower rate there; empty or 0: none
  LinkTable links = {};                  ///< between devices
  double dispatch_latency_s = 0;         ///< dispatch latency of an idle queue
  /// From when a copy has left its link until its end is known.
  double copy_latency_s = 5e-6;
  double admission_s = 1e-3;
  double network_bytes_per_s = 1e9;  ///< between this host and all others, each direction
  double network_latency_s = 1e-4;   ///< of an exchange
  std::vector<double> slowdown;      ///< by device, factor on the time of compute; empty: 1
  std::vector<double> op_start_s;    ///< by device, of an op besides its layers; empty: 0
  Contention contention;
  int host_workers = 2;
  double cancel_s = 0;  ///< until the actions of a lost device have ended

  double slowdown_of(std::size_t device) const;
  double op_start_of(std::size_t device) const;
  /// Bytes a second between the device and the host, each direction.
  double copy_rate_of(std::size_t device) const;
};

}  // namespace spillway
