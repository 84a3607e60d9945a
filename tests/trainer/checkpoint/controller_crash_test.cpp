#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/random/from_environment.h"
#include "tests/support/run/virtual_controller.h"

/// A controller crashes at any event, several times, and restarts on other devices. Each time its
/// real journal and its real checkpoints remain, on a disk that loses unsynced data. No
/// acknowledged job is lost or run twice.
///
///   SPILLWAY_PROPERTY_SEED=7 controller_crash_test      one run
///   SPILLWAY_PROPERTY_RUNS=50000 controller_crash_test  seeds 1 to 50000
namespace spillway::testing {
namespace {

/// What has happened so far.
struct Counts {
  int crashes = 0, unacknowledged = 0, resumed = 0, ended_again = 0, done = 0;
  void operator+=(const Counts& other) {
    crashes += other.crashes, unacknowledged += other.unacknowledged, resumed += other.resumed;
    ended_again += other.ended_again, done += other.done;
  }
};

/// All lives of a controller, and its client, which submits until it gets an answer.
class CrashRun {
 public:
  CrashRun(std::uint64_t seed, const std::string& journal, Mistake mistake)
      : workload_(RandomCrashWorkload(seed).make()),
        journal_(journal),
        mistake_(mistake),
        random_(static_cast<unsigned>(seed)) {}

  void run() {
    for (const Life& life : workload_.lives) {
      VirtualController controller(workload_, life, journal_, std::move(disk_), mistake_,
                                   static_cast<unsigned>(random_()), audit_);
      counts.resumed += controller.resumed;
      counts.ended_again += controller.ended_again;
      live(controller, life);
      disk_ = controller.crash(is_last(life) ? nullptr : interrupted_submission());
      counts.crashes += is_last(life) ? 0 : 1;
    }
  }

  /// The problems: of the audit, of the final journal, and of the last checkpoints.
  std::vector<std::string> problems() {
    auto problems = audit_.problems();
    const auto trials = Journal(journal_).trials();
    if (trials.size() != workload_.jobs.size()) problems.emplace_back("the journal has other jobs");
    for (const JournalTrial& trial : trials) {
      const auto job = std::ranges::find(workload_.jobs, trial.client_id, &ClientJob::id);
      const auto last = static_cast<std::uint64_t>(job->shape.max_steps);
      if (trial.state != "done" || !trial.committed || trial.committed->step != last)
        problems.push_back(job->id + " is not done in the journal");
      if (last_steps(*job) != all_steps(last)) problems.push_back(job->id + " has other steps");
      ++counts.done;
    }
    return problems;
  }

  ControllerAudit& audit() { return audit_; }
  Counts counts;

 private:
  static bool is_last(const Life& life) { return life.num_events == Life().num_events; }

  void live(VirtualController& controller, const Life& life) {
    for (int event = 0; event < life.num_events; ++event, ++events_) {
      ask(controller);
      if (event > 0 && event == life.loses_device_after) controller.lose_device();
      if (!controller.advance() && everything_is_acknowledged()) return;
    }
  }

  void ask(VirtualController& controller) {
    for (const ClientJob& job : workload_.jobs) {
      const bool again = audit_.is_acknowledged(job.id);
      if (events_ < job.submitted_after + (again ? 100 : 0)) continue;
      if (!again || (job.asks_twice && asked_twice_.insert(job.id).second)) controller.submit(job);
    }
  }
  bool everything_is_acknowledged() const {
    return std::ranges::all_of(
        workload_.jobs, [&](const ClientJob& job) { return audit_.is_acknowledged(job.id); });
  }

  /// Sometimes the crash comes before the client gets an answer.
  const ClientJob* interrupted_submission() {
    if (random_() % 2 == 0) return nullptr;
    for (const ClientJob& job : workload_.jobs) {
      if (audit_.is_acknowledged(job.id)) continue;
      ++counts.unacknowledged;
      return &job;
    }
    return nullptr;
  }

  std::string last_steps(const ClientJob& job) const {
    CrashFs files(disk_);
    const auto newest = CheckpointStore(files, "/" + job.id).open_newest();
    return newest.generation ? bytes_of(newest.generation->file("steps")) : "";
  }
  static std::string all_steps(std::uint64_t count) {
    std::string all;
    for (std::uint64_t step = 0; step < count; ++step) all += std::to_string(step) + " ";
    return all;
  }

  const CrashWorkload workload_;
  const std::string journal_;
  const Mistake mistake_;
  std::mt19937 random_;
  ControllerAudit audit_;
  Disk disk_;
  std::set<std::string> asked_twice_;
  int events_ = 0;
};

/// In memory if the system has such a folder: another test checks that the journal syncs.
class ControllerCrash : public ::testing::Test {
 protected:
  std::string journal(std::uint64_t seed) const { return folder_ / (std::to_string(seed) + ".db"); }

  /// The number of seeds, of 30, with a problem that ends like this.
  int num_caught(Mistake mistake, const std::string& problem) const {
    int caught = 0;
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      CrashRun run(seed, journal(seed), mistake);
      try {
        run.run();
      } catch (const Error&) {  // the journal itself detects some faults
      }
      caught += std::ranges::any_of(run.audit().problems(), [&](const std::string& found) {
        return found.ends_with(problem);
      });
    }
    return caught;
  }

 private:
  static std::filesystem::path memory() {
    const std::filesystem::path shm = "/dev/shm";
    return std::filesystem::is_directory(shm) ? shm : std::filesystem::temp_directory_path();
  }
  const TemporaryFolder folder_{memory()};
};

TEST_F(ControllerCrash, LosesNoAcknowledgedJobAndRunsNoneTwice) {
  const std::uint64_t only = from_environment("SPILLWAY_PROPERTY_SEED", 0);
  const std::uint64_t last =
      only ? only : from_environment("SPILLWAY_PROPERTY_RUNS", campaign_size(1000, 100));
  Counts all;
  for (std::uint64_t seed = only ? only : 1; seed <= last; ++seed) {
    SCOPED_TRACE("SPILLWAY_PROPERTY_SEED=" + std::to_string(seed));
    CrashRun run(seed, journal(seed), Mistake::none);
    ASSERT_NO_THROW(run.run());
    ASSERT_EQ(run.problems(), std::vector<std::string>{});
    std::filesystem::remove(journal(seed));
    all += run.counts;
  }
  if (last < 300 || only) return;
  const int runs = static_cast<int>(last);
  EXPECT_GT(all.crashes, 2 * runs);
  EXPECT_GT(all.unacknowledged, runs / 5);
  EXPECT_GT(all.resumed, runs / 2);
  EXPECT_GT(all.ended_again, runs / 50) << "crashed after the end, before the journal had it";
  EXPECT_GT(all.done, 2 * runs);
}

TEST_F(ControllerCrash, DetectsAForgottenJob) {
  EXPECT_GT(num_caught(Mistake::forgets_a_job, "was acknowledged and is lost"), 12);
}
TEST_F(ControllerCrash, DetectsASkippedStep) {
  EXPECT_GT(num_caught(Mistake::skips_a_step, "has a gap in its steps"), 10);
}
TEST_F(ControllerCrash, DetectsAJobThatRunsAgain) {
  EXPECT_GT(num_caught(Mistake::restarts_what_is_done, "runs after it was done"), 12);
}
TEST_F(ControllerCrash, DetectsRepeatedSteps) {
  EXPECT_GT(num_caught(Mistake::begins_from_the_start, "has a gap in its steps"), 10);
}
TEST_F(ControllerCrash, DetectsADoubleSubmission) {
  EXPECT_GT(num_caught(Mistake::begins_a_job_twice, "is there twice"), 10);
}
TEST_F(ControllerCrash, DetectsAnEarlyAcknowledgement) {
  EXPECT_GT(num_caught(Mistake::acknowledges_too_early, "was acknowledged and is lost"), 4);
}

}  // namespace
}  // namespace spillway::testing
