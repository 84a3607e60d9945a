#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "core/os/host_memory.h"
#include "runs/config/sweep.h"
#include "runs/log/event_log.h"
#include "spillway/session.h"

namespace spillway {

/// The place of a session's events in the log of a run: after the events of earlier sessions.
struct Place {
  std::vector<std::size_t> trials;  ///< numbers in the log, by number in the session
  std::uint64_t sequence = 0;       ///< of the last earlier event
  double time_s = 0;

  SessionEvent operator()(SessionEvent event) const;
};

/// A run that is ready to train: its folder is locked, its trials are submitted, its log is
/// flushed.
struct OpenRun {
  std::vector<Trial> all;     ///< of the configuration
  std::vector<Trial> trials;  ///< by number in the session
  Place place;
  std::optional<RunResult> planned;  ///< by simulate()
  std::unique_ptr<EventLog> events;
  std::unique_ptr<Session> session;
};

/// What the process gives a run.
struct RunResources {
  std::filesystem::path pilot_cache;   ///< cache of measured costs; empty: none
  HostMemory machine = host_memory();  ///< which the run must fit
};

/// Runs the session on a virtual clock. Nullopt if that would take too long, or if hosts that meet
/// again would wait for it.
std::optional<RunResult> simulate(const Session& session, const std::vector<Trial>& trials);

}  // namespace spillway
