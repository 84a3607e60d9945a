#pragma once

#include <cstdint>
#include <string>

#include "spillway/ids.h"
#include "spillway/units.h"

namespace spillway {

/// Something that ran, on one of the queues that a run has.
struct TraceSpan {
  enum class Track : std::uint8_t { compute, to_device, to_host, host_pool } track = Track::compute;
  DeviceId device;  ///< not valid on the host pool
  JobId job;
  std::string name;       ///< "backward 3-5 vn 2" (layers, virtual node), "weights", "update"
  std::int64_t step = 0;  ///< steps that the job had committed
  Bytes bytes = 0;        ///< of a copy
  double started_s = 0, finished_s = 0;  ///< of the run's clock, real or virtual
};

}  // namespace spillway
