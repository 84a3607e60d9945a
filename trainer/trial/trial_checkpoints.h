#pragma once

#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/contract.h"
#include "spillway/trial_config.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/compute/trial_state.h"

namespace spillway {

/// Disk space of all checkpoints that a trial keeps while one more is written; 0: it keeps none.
Bytes most_checkpoint_bytes(const TrialConfig& trial, const ModelSpec& model,
                            const StatePlaces& places);

/// The checkpoints of one trial: decides when the next is due, and writes it while the trial
/// continues. The one thread of `writer` writes the files. For one thread at a time.
class TrialCheckpoints {
 public:
  /// The outcome of one checkpoint.
  struct Saved {
    std::int64_t step = 0;
    std::uint64_t generation = 0;
    Bytes bytes = 0;
    double seconds = 0;
    std::string problem;            ///< empty: it is durable; otherwise older ones are unchanged
    std::vector<Finding> findings;  ///< about older ones
  };
  /// Both are called on the writer's thread: `Record` once a generation is durable, before older
  /// ones are removed; `Report` at the end.
  using Record = std::function<void(std::uint64_t generation, std::int64_t step)>;
  using Report = std::function<void(const Saved&)>;

  /// Accesses no file.
  TrialCheckpoints(const CheckpointConfig& config, std::string trial, Contract contract,
                   FileSystem& files, boost::asio::thread_pool& writer, Record record,
                   Report report);

  struct Newest {
    std::optional<Generation> generation;
    std::vector<Finding> findings;  ///< newer ones that are damaged
  };
  /// The generation to resume from; none if there is no folder, or all are damaged. Throws
  /// ConfigError
  /// (`checkpoint`) if it belongs to another contract; NewerFormat.
  Newest open_newest();
  /// The steps of the newest generation that has a manifest; none if there is none.
  std::optional<std::int64_t> newest_step() const;
  /// Creates the folder if it is missing. Without it, nothing is saved. Throws IoError.
  void open();
  /// Saves nothing from now on, unless open() is called again: another process may write the
  /// folder.
  void close() { store_.reset(); }

  /// Sets the state that save() reads: in a home, through a gate, and what other hosts have. They
  /// outlive this object.
  void attach(const StatePlaces& places, const Home& home, StateGate& gate,
              RemoteState* remote = nullptr);
  /// True while a checkpoint is being written.
  bool is_saving() const;
  /// True if a checkpoint is due after `step` steps, and none is being written.
  bool is_due(std::int64_t step) const;
  /// True if this state is durable. Not while a checkpoint is being written.
  bool has_saved(const TrialHistory& history) const { return last_saved_ == version_of(history); }
  /// Starts a checkpoint of the state after the steps of `history`. Call before another commit. If
  /// other hosts have some of it, they have to send it.
  void save(TrialHistory history);
  /// The same, unless this state is already saved or being saved.
  void save_unless_saved(TrialHistory history);
  /// Waits for the checkpoint that is being written.
  void wait();
  /// Waits, then writes the state unless it is already saved. Nothing may change it meanwhile. If
  /// other hosts have some of it, it only waits.
  void save_last(TrialHistory history);

 private:
  /// The number of steps, and of changes of values.
  using Version = std::pair<std::int64_t, std::size_t>;
  static Version version_of(const TrialHistory& history) {
    return {history.num_steps(), history.changes().size()};
  }
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
  const Home* home_ = nullptr;
  StateGate* gate_ = nullptr;
  RemoteState* remote_ = nullptr;
  std::future<void> saving_;
  Clock::time_point last_begun_ = Clock::now();
  Version begun_{-1, 0};       ///< by the latest save()
  Version last_saved_{-1, 0};  ///< used by the writer's thread while it saves
};

}  // namespace spillway
