#pragma once

#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "spillway/contract.h"
#include "spillway/trial_config.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/compute/trial_state.h"

namespace spillway {

/// Bytes on disk of all that such a trial keeps while one more is written; 0: it keeps none.
Bytes most_checkpoint_bytes(const TrialConfig& trial, const ModelSpec& model,
                            const StatePlaces& places);

/// The checkpoints of one trial: which there are, when the next is due, how it is made while the
/// trial trains on. What is written is written on the one thread of `writer`. For one thread at a
/// time.
class TrialCheckpoints {
 public:
  /// What became of one.
  struct Saved {
    std::int64_t step = 0;
    std::uint64_t generation = 0;
    Bytes bytes = 0;
    double seconds = 0;
    std::string problem;            ///< empty: it is durable; else older ones are as they were
    std::vector<Finding> findings;  ///< of older ones
  };
  /// Called on the writer's thread, both: of a generation that is durable, before older ones go;
  /// of how it ended.
  using Record = std::function<void(std::uint64_t generation, std::int64_t step)>;
  using Report = std::function<void(const Saved&)>;

  /// Touches no file.
  TrialCheckpoints(const CheckpointConfig& config, std::string trial, Contract contract,
                   FileSystem& files, boost::asio::thread_pool& writer, Record record,
                   Report report);

  struct Newest {
    std::optional<Generation> generation;
    std::vector<Finding> findings;  ///< newer ones that are damaged
  };
  /// To go on from; none where there is no folder, or where all are damaged. Throws ConfigError
  /// (`checkpoint`) where it was made by another contract, NewerFormat.
  Newest open_newest();
  /// Makes the folder, unless it is there. Before attach(). Throws IoError.
  void open();

  /// The state that save() reads: of a home, through a gate. They outlive it.
  void attach(const StatePlaces& places, const std::byte* home, StateGate& gate);
  /// Whether one is due after so many steps, and the last one written.
  bool is_due(std::int64_t step) const;
  /// Begins one of the state after `history.step` steps, before another step commits.
  void save(TrialHistory history);
  /// Waits for the one that is being written.
  void wait();
  /// Waits, then writes the state, which nothing changes meanwhile, unless that was done.
  void save_last(TrialHistory history);

 private:
  GenerationContent content(const TrialHistory& history) const;
  void write(const TrialHistory& history);

  using Clock = std::chrono::steady_clock;
  const CheckpointConfig config_;
  const std::string trial_;
  const Contract contract_;
  FileSystem& files_;
  std::optional<CheckpointStore> store_;
  boost::asio::thread_pool& writer_;
  const Record record_;
  const Report report_;
  const StatePlaces* places_ = nullptr;
  const std::byte* home_ = nullptr;
  StateGate* gate_ = nullptr;
  std::future<void> saving_;
  Clock::time_point last_begun_ = Clock::now();
  std::int64_t last_saved_ = -1;  ///< step; of the writer's thread while it saves
};

}  // namespace spillway
