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

/// A job that competes for devices.
struct Contender {
  JobId job;
  int priority = 1;        ///< from 1; a larger one is more important
  double arrival_s = 0;    ///< breaks ties of priority: the earlier job comes first
  int most_lanes = 1;      ///< number that it asks for and can use
  int lanes = 0;           ///< number that it has; 0: it waits
  bool resizing = false;   ///< a resize to `lanes` is pending
  double remaining_s = 1;  ///< on one lane
  SpeedCurve speed{};
};

/// Distributes devices to jobs, as lanes; pure. Called when a job arrives or ends, when devices are
/// added or leave, and when a resize is done.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual std::string_view name() const = 0;
  /// Lanes of each job, in the order of `jobs`: at most its `most_lanes`, at most the number of
  /// devices; 0: it waits.
  virtual std::vector<int> share(std::span<const Contender> jobs, int num_devices) const = 0;
};

/// Null for SharingKind::none.
///   priority  a job runs on all lanes that it asks for or waits; jobs start strictly in order of
///             priority. Never resizes.
///   wfs       weighted fair shares, powers of two: every running job gets devices in proportion to
///             its priority, at least one and at most what it asks for; remaining devices double
///             shares in order of priority. The first waiting job starts if a device is left for
///             it and no running job of higher priority shrinks. No decision while a resize is
///             pending. Source: VirtualFlow, elastic weighted fair sharing
///   fill      no job waits: every job has a lane, and if there are fewer devices than jobs, their
///             units take turns. Each further lane goes to the job where it reduces the sum of
///             priority * remaining time most, by Contender::speed; one that reduces nothing stays
///             free. Lanes stay as they are while that sum is within 5 % of the minimum and no
///             device idles.
std::shared_ptr<const Allocator> make_allocator(SharingKind kind);
/// Null for a name that is not among kAllocatorNames.
std::shared_ptr<const Allocator> make_allocator(std::string_view name);

inline constexpr std::array kAllocatorNames{
    to_string(SharingKind::priority), to_string(SharingKind::wfs), to_string(SharingKind::fill)};

}  // namespace spillway
