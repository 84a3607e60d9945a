#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "scheduler/elastic/speed_curve.h"
#include "spillway/choices.h"
#include "spillway/ids.h"

namespace spillway {

/// A job among which devices are shared out.
struct Contender {
  JobId job;
  int priority = 1;        ///< from 1; a larger one is more important
  double arrival_s = 0;    ///< among equals of priority, who came first comes first
  int most_lanes = 1;      ///< that it asks for and can use
  int lanes = 0;           ///< that it has been given, and counts on; 0: it waits
  bool resizing = false;   ///< to `lanes`, and not done with it
  double remaining_s = 1;  ///< that it would still take on one lane
  SpeedCurve speed{};
};

/// Shares devices out to jobs, as lanes; pure. Asked when a job comes or ends, when devices come or
/// go, when a resize is done.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual std::string_view name() const = 0;
  /// Lanes of each job, in the order of `jobs`: at most its `most_lanes`, at most the number of
  /// devices; 0: it waits.
  virtual std::vector<int> share(std::span<const Contender> jobs, int num_devices) const = 0;
};

/// Null for SharingKind::none.
///   priority  a job runs on all lanes that it asks for, or waits: the first in order of priority
///             until so many devices are free, and all behind it. Never resized.
///   wfs       weighted fair shares, powers of two: every running job gets devices in proportion to
///             its priority, at least one, at most what it asks for; what is left over doubles
///             shares in order of priority. The first that waits starts if there is a device for it
///             and nobody of higher priority that runs gets fewer for it. No decision while a
///             resize is pending. Source: VirtualFlow, elastic weighted fair sharing
///   fill      nobody waits: every job has a lane, and where that is more than there are devices,
///             units of several jobs take turns on one. Lanes for the other devices, any number a
///             job, go where the sum of priority * remaining time falls most by each. What jobs
///             have stays while that sum is within a twentieth of the least and no device idles.
std::shared_ptr<const Allocator> make_allocator(SharingKind kind);
/// Null for a name that is not among kAllocatorNames.
std::shared_ptr<const Allocator> make_allocator(std::string_view name);

inline constexpr std::array kAllocatorNames{
    to_string(SharingKind::priority), to_string(SharingKind::wfs), to_string(SharingKind::fill)};

}  // namespace spillway
