#include "runs/log/metrics_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "runs/log/event_json.h"
#include "runs/log/event_log.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/made_up_run.h"
#include "trainer/compute/optimizer.h"

namespace spillway::testing {
namespace {

using Kind = SessionEvent::Kind;

constexpr const char* kHeader =
    "step,loss,learning_rate,gradient_norm,tokens_per_s,time_s,eval_loss\r\n";

std::string metrics_of(const TemporaryFolder& folder, int trial = 0) {
  return folder.read("trials/trial " + std::to_string(trial) + "/metrics.csv");
}

double loss_of(std::int64_t step) { return 10 - 0.1 * static_cast<double>(step); }
double norm_of(std::int64_t step) { return 1 / static_cast<double>(step); }
bool is_evaluated(std::int64_t step) { return step % 3 == 0; }
double eval_of(std::int64_t step) { return loss_of(step) + 0.25; }
Metrics accuracy_of(std::int64_t step) { return {{"accuracy", 0.001 * static_cast<double>(step)}}; }

Json run_event_with_metrics() {
  Json run = made_up_run_event(1);
  run["trials"][0]["metrics"] = {"accuracy"};
  return run;
}

/// A program that trains trial 0 and writes its log until it is killed.
class Program {
 public:
  explicit Program(const TemporaryFolder& folder) : folder_(folder), log_(folder / kEventFile) {
    log_.add(run_event_with_metrics());
    log_.flush();
  }

  /// Continues after the step; its history starts after `dropped`.
  void begin(std::int64_t step, std::int64_t dropped = 0) {
    metrics_.emplace(folder_.path());
    step_ = step;
    if (step == 0) return;
    TrialResult result{.first_loss = loss_of(1), .dropped_steps = dropped};
    for (std::int64_t s = dropped + 1; s <= step; ++s) {
      result.losses.push_back(loss_of(s));
      result.gradient_norms.push_back(norm_of(s));
    }
    for (std::int64_t s = 1; s <= step; ++s) {
      if (s <= dropped || !is_evaluated(s)) continue;
      result.eval_losses.emplace_back(s, eval_of(s));
      result.eval_metrics.emplace_back(s, accuracy_of(s));
    }
    SessionEvent event = next(Kind::resumed);
    event.step = step;
    add(resumed_event(event, result, train_));
    evaluate();
  }

  void train_to(std::int64_t end) {
    while (step_ < end) {
      ++step_;
      SessionEvent event = next(Kind::step);
      event.loss = loss_of(step_);
      event.learning_rate = learning_rate_at(train_, step_ - 1);
      event.gradient_norm = norm_of(step_);
      add(to_json(event));
      evaluate();
    }
  }

  void end() {
    SessionEvent event = next(Kind::state);
    event.state = TrialState::done;
    add(to_json(event));
    metrics_->flush();
  }

  void flush() { metrics_->flush(); }

  /// The log after a crash of the machine: without its last lines.
  void lose(std::size_t num_lines) {
    std::string text = folder_.read(kEventFile);
    for (; num_lines > 0; --num_lines) text.erase(text.rfind('\n', text.size() - 2) + 1);
    folder_.write(kEventFile, text);
  }

 private:
  SessionEvent next(Kind kind) {
    ++sequence_;
    SessionEvent event = made_up_event(sequence_, static_cast<double>(sequence_), 0, kind);
    event.step = step_;
    return event;
  }
  /// If one is due; also at the step after which a program continues.
  void evaluate() {
    if (!is_evaluated(step_)) return;
    SessionEvent eval = next(Kind::eval);
    eval.loss = eval_of(step_);
    eval.metrics = accuracy_of(step_);
    add(to_json(eval));
  }
  void add(const Json& event) {
    log_.add(event);
    log_.flush();
    metrics_->take(event);
  }

  const TemporaryFolder& folder_;
  EventLog log_;
  std::optional<MetricsFiles> metrics_;
  TrainConfig train_;
  std::uint64_t sequence_ = 0;
  std::int64_t step_ = 0;
};

/// Without fields that a checkpoint does not store.
std::vector<std::string> without_times(const std::string& csv) {
  std::vector<std::string> lines;
  std::istringstream text(csv);
  for (std::string line; std::getline(text, line);) {
    std::vector<std::string> cells(1);
    for (const char c : line) c == ',' ? cells.emplace_back() : cells.back() += c;
    cells.at(4) = cells.at(5) = "";
    line.clear();
    for (const std::string& cell : cells) line += cell + ",";
    lines.push_back(line);
  }
  return lines;
}

/// Rows of an uninterrupted program.
std::string undisturbed(std::int64_t steps) {
  const TemporaryFolder folder;
  Program program(folder);
  program.begin(0);
  program.train_to(steps);
  program.end();
  return metrics_of(folder);
}

/// An evaluation belongs to the step whose weights it used.
TEST(MetricsFiles, HaveOneLineAStep) {
  const TemporaryFolder folder;
  EventLog log(folder / kEventFile);
  log.add(made_up_run_event(2));
  for (const auto& event : made_up_events()) log.add(to_json(event));
  log.flush();
  MetricsFiles files(folder.path());
  EXPECT_EQ(metrics_of(folder, 0), std::string(kHeader) +
                                       "1,4.5,0.01,2,100,2,4.25\r\n"
                                       "2,3.5,0.005,1.5,120,3,3.75\r\n");
  EXPECT_EQ(metrics_of(folder, 1), kHeader);
}

TEST(MetricsFiles, AreWrittenDuringTheRun) {
  const TemporaryFolder folder;
  Program program(folder);
  program.begin(0);
  for (std::int64_t step = 1; step <= 20; ++step) {
    program.train_to(step);
    program.flush();
    // The last line may still get its evaluation.
    EXPECT_EQ(std::ranges::count(metrics_of(folder), '\n'), step) << "and the header";
  }
  program.end();
  EXPECT_EQ(metrics_of(folder), undisturbed(20));
}

TEST(MetricsFiles, AreRebuiltFromTheLog) {
  const TemporaryFolder folder;
  Program program(folder);
  program.begin(0);
  program.train_to(50);
  program.end();
  const std::string whole = metrics_of(folder);
  const auto expect_same = [&] {
    MetricsFiles{folder.path()};
    EXPECT_EQ(metrics_of(folder), whole);
  };
  folder.write("trials/trial 0/metrics.csv", whole.substr(0, 100) + "damaged");
  expect_same();
  std::filesystem::remove_all(folder / "trials");
  expect_same();
  folder.write("mine", "mine");
  std::filesystem::remove(folder / "trials/trial 0/metrics.csv");
  std::filesystem::create_symlink("../../mine", folder / "trials/trial 0/metrics.csv");
  expect_same();
  EXPECT_EQ(folder.read("mine"), "mine") << "a link is replaced, not followed";
  folder.write(kEventFile, folder.read(kEventFile) + "{damaged\n{\"event\": \"step\"}\n[]\n");
  expect_same();
}

/// Killed again and again, and resumed from an earlier checkpoint or from the beginning; some
/// checkpoints keep only the last steps.
TEST(MetricsFiles, EqualAnUninterruptedRunAfterKills) {
  constexpr std::int64_t kSteps = 60;
  const auto expected = without_times(undisturbed(kSteps));
  ASSERT_EQ(expected.size(), kSteps + 1u);
  std::mt19937_64 random(1);
  for (int run = 0; run < 300; ++run) {
    const TemporaryFolder folder;
    Program program(folder);
    const auto below = [&](std::int64_t end) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
    };
    std::int64_t checkpoint = 0;
    for (std::int64_t kills = below(4); kills >= 0; --kills) {
      program.begin(checkpoint, checkpoint > 0 ? below(checkpoint) : 0);
      const std::int64_t end = kills == 0 ? kSteps : checkpoint + below(kSteps - checkpoint);
      program.train_to(end);
      if (random() % 2 == 0) program.flush();
      checkpoint = random() % 5 == 0 ? 0 : checkpoint + below(end - checkpoint + 1);
    }
    program.end();
    ASSERT_EQ(without_times(metrics_of(folder)), expected) << run;
    const std::string written = metrics_of(folder);
    MetricsFiles{folder.path()};
    ASSERT_EQ(metrics_of(folder), written) << run;
  }
}

TEST(MetricsFiles, HaveAColumnForEachMetric) {
  const TemporaryFolder folder;
  Program program(folder);
  program.begin(0);
  program.train_to(3);
  program.end();
  EXPECT_NE(metrics_of(folder).find(",eval_loss,accuracy\r\n"), std::string::npos);
  const auto rows = read_metrics(folder / "trials/trial 0/metrics.csv");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].metrics, Metrics{}) << "it was not evaluated";
  EXPECT_EQ(rows[2].metrics, accuracy_of(3));
}

TEST(MetricsFiles, RestoreLostStepsFromTheCheckpoint) {
  const TemporaryFolder folder;
  Program program(folder);
  program.begin(0);
  program.train_to(10);
  program.lose(6);  // steps 8, 9, 10 and their evaluations, and more
  program.begin(10, 4);
  program.train_to(12);
  program.end();
  EXPECT_EQ(without_times(metrics_of(folder)), without_times(undisturbed(12)));
}

/// More than is kept in memory before it is written.
TEST(MetricsFiles, MayBeLong) {
  constexpr std::int64_t kSteps = 20'000;
  const TemporaryFolder folder;
  Program program(folder);
  program.begin(0);
  program.train_to(kSteps - 10);
  EXPECT_GT(metrics_of(folder).size(), 500'000u);
  program.begin(kSteps - 50, kSteps - 100);
  program.train_to(kSteps);
  program.end();
  EXPECT_EQ(without_times(metrics_of(folder)), without_times(undisturbed(kSteps)));
}

}  // namespace
}  // namespace spillway::testing
