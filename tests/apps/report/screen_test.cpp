#include "apps/report/screen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "apps/report/progress.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/made_up_run.h"

namespace spillway::testing {
namespace {

using Lines = std::vector<std::string>;

/// Trials that run and have taken as many steps as they have before them in the list.
RunLog running(int num_trials) {
  RunLog run;
  run.apply(made_up_run_event(num_trials));
  run.begin_s = 10;
  run.time_s = 20;
  for (auto& trial : run.trials) trial.result.state = TrialState::running;
  return run;
}

/// Speeds of trials that have taken `steps` steps in as many seconds.
RecentSpeed a_step_a_second(const RunLog& run) {
  RecentSpeed speed;
  for (std::size_t t = 0; t < run.trials.size(); ++t) {
    auto begin = made_up_event(1, 0, t, SessionEvent::Kind::state);
    begin.state = TrialState::running;
    speed.take(begin);
    const auto steps = run.trials[t].result.steps;
    auto step = made_up_event(2, static_cast<double>(steps), t, SessionEvent::Kind::step);
    step.step = steps;
    speed.take(step);
  }
  return speed;
}

TEST(Screen, ShowsALineForEachRunningTrialAndOneForAll) {
  RunLog run = running(3);
  run.trials[0].result.steps = 5;
  run.trials[0].result.final_loss = 2.5;
  run.trials[0].result.tokens_per_s = 17;  // since the start: not shown
  run.trials[0].tokens_per_step = 1234;
  run.trials[2].result.state = TrialState::waiting;
  EXPECT_EQ(screen_lines(run, a_step_a_second(run), {}),
            (Lines{"  trial  seed  step    loss  tokens/s  left",
                   "  t0        0  5/10  2.5000     1.23k   5 s",
                   "  t1        1  0/10       -         -     -",
                   "0 of 3 trials ended, 17 % done, 50 s left"}));
}

TEST(Screen, FitsSweptValuesIntoEightyColumns) {
  RunLog run = running(12);
  for (auto& trial : run.trials) {
    trial.result.name =
        "learning_rate=0.0037255056,hidden_size=256,num_hidden_layers=3,dropout=0.19";
    trial.parameters = {{"train.learning_rate", "0.0037255056"},
                        {"model.hidden_size", "256"},
                        {"model.num_hidden_layers", "3"},
                        {"model.dropout", "0.190256"}};
    trial.result.steps = trial.max_steps = 120;
    trial.result.final_loss = 2.8347;
    trial.tokens_per_step = 4096;
  }
  const auto lines = screen_lines(run, a_step_a_second(run), {});
  EXPECT_EQ(lines[0],
            "  trial  learning_~  hidden~  num_hi~  dropout     step    loss  tokens/s  left");
  EXPECT_EQ(lines[4],
            "  t03      0.003726      256        3   0.1903  120/120  2.8347     4.10k   0 s");
  for (int columns = 1; columns < 130; ++columns) {
    for (const auto& line : screen_lines(run, a_step_a_second(run), {.columns = columns}))
      EXPECT_LT(line.size(), static_cast<std::size_t>(columns));
  }
  const auto narrow = screen_lines(run, a_step_a_second(run), {.columns = 40});
  EXPECT_EQ(narrow[4], "  t03    120/120  2.8347  4.10k   0 s");
}

TEST(Screen, ShowsTheCheckpointsThatAStoppingRunWrites) {
  RunLog run = running(3);
  for (auto& trial : run.trials) trial.checkpoint_bytes = 100;
  const auto total = [&] { return screen_lines(run, {}, {}, /*stopping=*/true).back(); };
  EXPECT_EQ(total(), "0 of 3 trials ended; stopping: ending the running operations");
  for (auto& trial : run.trials) trial.result.steps = 5;
  run.trials[1].saved = {.generation = 1, .step = 5};
  EXPECT_EQ(total(), "0 of 3 trials ended; stopping: writing the checkpoints of t0, t2");
  run.trials[0].result.state = TrialState::stopped;
  EXPECT_EQ(total(), "1 of 3 trials ended; stopping: writing the checkpoints of t2");
  for (auto& trial : run.trials) trial.checkpoint_bytes = 0;  // checkpoint.keep: 0
  EXPECT_EQ(total(), "1 of 3 trials ended; stopping: ending the running operations");
}

TEST(Screen, PredictsNoTimeAfterTheLastStep) {
  RunLog run = running(2);
  for (auto& trial : run.trials) trial.result.steps = 10;
  EXPECT_EQ(screen_lines(run, {}, {}).back(),
            "0 of 2 trials ended, 100 % done, evaluating and saving");
  for (auto& trial : run.trials) trial.result.state = TrialState::done;
  EXPECT_EQ(screen_lines(run, {}, {}).back(), "2 of 2 trials ended, 100 % done");
}

TEST(Screen, WeighsStepsByTheirPlannedTime) {
  RunLog run = running(2);
  run.trials[0].compute_s_per_step = 9;
  run.trials[0].result.steps = 5;
  EXPECT_DOUBLE_EQ(share_done(run), 0.45);
  run.trials[1].result.state = TrialState::done;
  run.trials[1].result.steps = 10;
  EXPECT_DOUBLE_EQ(share_done(run), 0.55);
}

TEST(Screen, ExpectsNoStepsOfFailedTrials) {
  RunLog run = running(2);
  run.trials[0].result.steps = 10;
  run.trials[1].result.steps = 2;
  run.trials[1].result.state = TrialState::failed;
  EXPECT_DOUBLE_EQ(share_done(run), 1);
}

TEST(Screen, PredictsNothingBeforeTheFirstStep) {
  EXPECT_EQ(screen_lines(running(1), {}, {}).back(), "0 of 1 trials ended, 0 % done");
}

TEST(Screen, FitsTheTerminal) {
  const RunLog run = running(20);
  for (const int rows : {4, 5, 10, 21, 22, 23, 40}) {
    const auto lines = screen_lines(run, {}, {.columns = 80, .rows = rows});
    EXPECT_LT(lines.size(), static_cast<std::size_t>(rows));
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(std::min(rows == 4 ? 2 : rows - 1, 22)));
  }
  EXPECT_EQ(screen_lines(run, {}, {.columns = 80, .rows = 6}),
            (Lines{"  trial  seed  step  loss  tokens/s  left",
                   "  t00       0  0/10     -         -     -",
                   "  t01       1  0/10     -         -     -", "  and 18 more",
                   "0 of 20 trials ended, 0 % done"}));
  EXPECT_EQ(screen_lines(run, {}, {.columns = 12, .rows = 3}),
            (Lines{"  and 20 mo", "0 of 20 tri"}));
}

/// What is written to a terminal, here a file.
template <typename Write>
std::string on_terminal(const Write& write) {
  const TemporaryFolder folder;
  const int file = ::open(folder.write("terminal", "").c_str(), O_WRONLY);
  std::ostringstream out;
  write(out, file);
  ::close(file);
  EXPECT_EQ(out.str(), "");
  return folder.read("terminal");
}

/// Shows the made-up run; whatever is drawn is drawn after each event.
void show_all(Progress& progress) {
  RunLog run;
  run.apply(made_up_run_event(2));
  for (const auto& event : made_up_events()) {
    run.apply(to_json(event));
    progress.take(run, event);
    progress.show(run);
  }
  progress.finish();
}

TEST(Screen, IsRedrawnInPlaceAndLeavesWhatEnded) {
  const auto text =
      on_terminal([](std::ostream& out, int file) { show_all(*make_screen_progress(out, file)); });
  // Both run: four lines, over which the next picture goes.
  EXPECT_NE(text.find("  t1        1  0/10     -         -     -\n"
                      "0 of 2 trials ended, 0 % done\n\x1b[4F\x1b[J"),
            std::string::npos);
  EXPECT_NE(text.find("  t1  failed   trial 1  out of luck\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  t0  done     step  2/10  loss 3.5000"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\x1b[1F\x1b[J")) << "nothing of the picture stays";
}

TEST(Screen, WritesNoEscapesInLines) {
  std::ostringstream out;
  show_all(*make_line_progress(out));
  const auto text = out.str();
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
}

TEST(Screen, WritesEachCheckpointOfARunThatStops) {
  std::ostringstream out;
  const auto progress = make_line_progress(out);
  RunLog run = running(2);
  run.trials[1].checkpoint_bytes = 100;
  run.trials[1].result.steps = 5;
  auto saved = made_up_event(1, 20, 1, SessionEvent::Kind::saved);
  saved.step = 5;
  progress->take(run, saved);
  EXPECT_EQ(out.str(), "");  // nobody waits for it
  progress->stop(run);
  progress->take(run, saved);
  EXPECT_EQ(out.str(),
            "   20.0 s  stopping: writing the checkpoints of t1\n"
            "   20.0 s  t1  checkpoint written after step 5\n");
}

TEST(Screen, LetsNoNameControlTheTerminal) {
  RunLog run = running(1);
  run.trials[0].result.name = "a\x1b[2J";
  run.trials[0].result.reason = "no \r luck";
  const auto text = on_terminal([&](std::ostream& out, int file) {
    const auto progress = make_screen_progress(out, file);
    auto event = made_up_events().front();
    event.state = TrialState::failed;
    progress->take(run, event);
    progress->show(run);
  });
  EXPECT_NE(text.find("a\\x1b[2J  running  no \\x0d luck\n"), std::string::npos) << text;
  EXPECT_EQ(text.find_first_of("\x1b\r"), std::string::npos) << text;
}

TEST(Screen, FitsWideNames) {
  RunLog run = running(1);
  run.trials[0].result.name = "\xE4\xB8\xAD\xE6\x96\x87";
  EXPECT_EQ(screen_lines(run, {}, {.columns = 6, .rows = 9})[1], "  \xE4\xB8\xAD~");
  EXPECT_EQ(screen_lines(run, {}, {})[1],
            "  \xE4\xB8\xAD\xE6\x96\x87      0  0/10     -         -     -");
}

}  // namespace
}  // namespace spillway::testing
