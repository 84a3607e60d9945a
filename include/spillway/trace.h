#pragma once

#include <cstdint>
#include <string>

#include "spillway/ids.h"
#include "spillway/units.h"

namespace spillway {

/// One operation on one queue of a run.
struct TraceSpan {
  /// The queue.
  enum class Track : std::uint8_t {
    compute,                 ///< ops of a device
    to_device,               ///< copies from the host to a device
    to_host,                 ///< copies from a device to the host
    from_devices,            ///< copies from other devices to a device
    host_pool                ///< operations of the host
  } track = Track::compute;  ///< where it ran
  DeviceId device;           ///< not valid for the host pool
  JobId job;                 ///< whose operation it is
  std::string name;          ///< "backward 3-5 vn 2" (layers, virtual node), "weights", "update"
  std::int64_t step = 0;     ///< steps that the job had committed
  Bytes bytes = 0;           ///< of a copy
  double started_s = 0;      ///< on the run's clock, real or virtual
  double finished_s = 0;     ///< on the run's clock, real or virtual
};

}  // namespace spillway
