#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/check/controller_audit.h"
#include "tests/support/disk/crash_fs.h"
#include "tests/support/random/crash_workload.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/journal/journal.h"

namespace spillway::testing {

/// Faults of a controller: negative controls, which an audit must detect.
enum class Mistake {
  none,
  forgets_a_job,          ///< at a restart
  skips_a_step,           ///< continues one step behind the checkpoint
  restarts_what_is_done,  ///< at a restart
  begins_from_the_start,  ///< whatever is saved
  begins_a_job_twice,     ///< that is submitted twice
  acknowledges_too_early  ///< before the journal has it
};

/// One life of a controller under a virtual clock: the real engine, journal and checkpoints,
/// combined as in the program. A job's state is the list of its steps so far. Checkpoints are
/// written later, in the order of events, while training continues.
class VirtualController {
 public:
  /// Reads the files of the previous life, and continues every unfinished job.
  VirtualController(const CrashWorkload& workload, const Life& life, const std::string& journal,
                    Disk disk, Mistake mistake, unsigned seed, ControllerAudit& audit)
      : workload_(workload),
        mistake_(mistake),
        random_(seed),
        audit_(audit),
        journal_(journal),
        disk_(std::move(disk)),
        shell_(life.config, workload.costs) {
    shell_.on_action = [this](const Action& action) {
      audit_.on_action(action);
      std::visit([this](const auto& a) { note(a); }, action);
    };
    shell_.on_completion = [this](const Done& done) { audit_.on_completion(done); };
    audit_.begin_life();
    go_on();
  }
  VirtualController(const VirtualController&) = delete;
  VirtualController& operator=(const VirtualController&) = delete;

  /// The job is acknowledged once this returns.
  void submit(const ClientJob& job) {
    const bool is_new = journal_.submit(job.id, job.config).is_new;
    if (is_new || mistake_ == Mistake::begins_a_job_twice) begin(job);
    audit_.acknowledge(job.id);
  }

  /// False when nothing is left to do.
  bool advance() {
    if (++num_events_ % 16 == 0) shell_.engine().check_integrity();
    if (shell_.advance()) return true;
    if (shell_.engine().all_ended()) return false;
    shell_.add_device(workload_.ample);  // waiting jobs found no device
    return true;
  }
  void lose_device() { shell_.lose_device(DeviceId(0)); }

  /// The disk after a crash now, possibly in the middle of a checkpoint or of `submission`, which
  /// is not acknowledged.
  Disk crash(const ClientJob* submission) {
    if (submission != nullptr && mistake_ == Mistake::acknowledges_too_early) {
      audit_.acknowledge(submission->id);
    } else if (submission != nullptr) {
      journal_.submit(submission->id, submission->config);
    }
    auto change = disk_.num_changes();
    for (Training& job : training_) {
      if (job.due && change == disk_.num_changes()) write(job);
    }
    change += random_() % (disk_.num_changes() - change + 1);
    return disk_.after_crash(change, &random_);
  }

  const Engine& engine() const { return shell_.engine(); }
  int resumed = 0;      ///< jobs that continued from a checkpoint
  int ended_again = 0;  ///< of these, from their last one

 private:
  using Steps = std::string;  ///< "0 1 2 "
  struct Training {
    const ClientJob* job;
    CheckpointStore store;
    Steps steps;
    std::int64_t step = 0;
    struct State {
      Steps steps;
      std::int64_t step = 0;
    };
    std::optional<State> due;  ///< a checkpoint to write
  };

  void go_on() {
    auto trials = journal_.trials();
    const auto is_done = [](const JournalTrial& trial) { return trial.state == "done"; };
    if (mistake_ != Mistake::restarts_what_is_done) std::erase_if(trials, is_done);
    if (mistake_ == Mistake::forgets_a_job && !trials.empty()) trials.pop_back();
    for (const JournalTrial& trial : trials) {
      begin(*std::ranges::find(workload_.jobs, trial.client_id, &ClientJob::id));
    }
  }

  void begin(const ClientJob& job) {
    training_.push_back({&job, CheckpointStore(disk_, "/" + job.id), "", 0, {}});
    Training& training = training_.back();
    if (const auto newest = training.store.open_newest(); newest.generation) {
      training.steps = bytes_of(newest.generation->file("steps"));
      training.step = static_cast<std::int64_t>(newest.generation->manifest().step);
      ++resumed;
      ended_again += training.step == job.shape.max_steps ? 1 : 0;
    }
    const JobId id(training_.size() - 1);
    const auto plan = job.plan(random_(), first_step(training));
    audit_.begin(id, job.id, plan, training.step);
    shell_.submit(id, plan);
  }

  std::int64_t first_step(const Training& training) const {
    if (mistake_ == Mistake::begins_from_the_start) return 0;
    const std::int64_t skipped = mistake_ == Mistake::skips_a_step && training.step > 0 ? 1 : 0;
    return std::min(training.step + skipped, training.job->shape.max_steps);
  }

  template <typename Other>
  void note(const Other&) {}
  void note(const StepCommitted& committed) {
    Training& training = training_[committed.job.index()];
    training.steps += std::to_string(committed.step - 1) + " ";
    training.step = committed.step;
    if (training.due || training.step % training.job->save_every != 0) return;
    training.due = {training.steps, training.step};
    later([this, &training] { save(training); });
  }
  /// Pending checkpoints are written first, then the last state, then the journal.
  void note(const JobEnded& ended) {
    Training& training = training_[ended.job.index()];
    save(training);
    training.due = {training.steps, training.step};
    save(training);
    tell_journal([this, &training] {
      journal_.set_state(training.job->id, "done");
      audit_.finish(training.job->id);
    });
  }

  void save(Training& training) {
    if (!training.due) return;
    const auto step = static_cast<std::uint64_t>(training.due->step);
    const std::uint64_t generation = write(training);
    audit_.save(training.job->id, training.due->step);
    training.due.reset();
    tell_journal([this, &training, generation, step] {
      journal_.committed(training.job->id, generation, step);
    });
  }
  static std::uint64_t write(Training& training) {
    return training.store
        .write({.job = training.job->id,
                .step = static_cast<std::uint64_t>(training.due->step),
                .build = "test",
                .contract = {},
                .files = {bytes_file("steps", training.due->steps)}})
        .generation;
  }

  void tell_journal(std::function<void()> tell) {
    untold_.push_back(std::move(tell));
    later([this] {
      untold_.front()();
      untold_.pop_front();
    });
  }
  void later(std::function<void()> call) {
    const double delay_s = static_cast<double>(random_() % 5000) * 1e-6;
    shell_.call_at(shell_.now_s() + delay_s, [call = std::move(call)](VirtualShell&) { call(); });
  }

  const CrashWorkload& workload_;
  const Mistake mistake_;
  std::mt19937 random_;
  ControllerAudit& audit_;
  Journal journal_;
  CrashFs disk_;
  VirtualShell shell_;
  std::deque<Training> training_;  ///< by the engine's numbers
  std::deque<std::function<void()>> untold_;
  int num_events_ = 0;
};

}  // namespace spillway::testing
