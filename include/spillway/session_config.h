#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spillway/device_config.h"
#include "spillway/units.h"

namespace spillway {

/// Early stopping by successive halving, in steps; see scheduler/elastic/successive_halving.h. Which trials
/// go on follows from their losses alone, whatever trains when and where.
struct EarlyTerminate {
  std::int64_t min_iter = 1;  ///< the first rung, at least 1
  int eta = 3;  ///< at least 2: so many times more steps to the next, for 1 / eta of them
  bool operator==(const EarlyTerminate&) const = default;
};

inline constexpr double kMostActivations = 0.9;

/// What a trial remembers of its own past: 1 MiB of losses and norms, 1 MiB of evaluations.
inline constexpr std::size_t kMaxHistory = 65'536;

struct SessionConfig {
  std::vector<DeviceConfig> devices;
  /// Of each device's memory, kept apart for activations. 0: they take what they need anywhere, or,
  /// where a device is a GPU, a quarter.
  double activation_share = 0;
  Bytes host_memory = 4_GiB;        ///< bounds the homes, wherever they lie
  std::filesystem::path home_path;  ///< homes lie in files of this folder; empty: in memory
  std::string policy = "lrtf";      ///< lrtf | srtf | fifo | round_robin | random
  /// Who gets how many lanes, see scheduler/elastic/allocator.h: none (what a trial asks for) | priority |
  /// wfs | fill. A trial takes part once its home is reserved.
  std::string sharing = "none";
  bool double_buffer = true;          ///< load what runs next while this op computes
  std::filesystem::path pilot_cache;  ///< measured costs, kept between runs; empty: not kept
  bool estimate = false;              ///< no pilot: costs from shapes. To simulate(), not to run()
  std::size_t max_trace_spans = 0;    ///< kept of a run, from its start
  std::size_t max_events = 100'000;   ///< kept for poll(), the last ones; at least 1
  /// Steps of a trial whose losses and norms are kept, the last ones, and as many evaluations: in
  /// its result and its checkpoints. At least 1.
  std::size_t max_history = kMaxHistory;
  /// A device that gives no sign of life for so long, and for 20 times what its work is planned to
  /// take, is lost.
  double device_timeout_s = 60;
  /// Whether a trial that no device is left for waits for one to be added. If not, it fails.
  bool wait_for_devices = true;
  /// Compares all trials of the session, and of its journal. Who waits for others keeps its home,
  /// so host_memory must hold all of them at once.
  std::optional<EarlyTerminate> early_terminate;
};

}  // namespace spillway
