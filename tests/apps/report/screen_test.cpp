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

TEST(Screen, OneLineATrialThatRunsAndOneForAll) {
  RunLog run = running(3);
  run.trials[0].result.steps = 5;
  run.trials[0].result.final_loss = 2.5;
  run.trials[0].result.tokens_per_s = 1234;
  run.trials[2].result.state = TrialState::waiting;
  EXPECT_EQ(screen_lines(run, {}),
            (Lines{"trial 0  step  5/10  loss 2.5000  1.23k tokens/s", "trial 1  step  0/10",
                   "0 of 3 trials ended, 17 % done, 50 s left"}));
}

TEST(Screen, StepsWeighWhatTheyArePlannedToTake) {
  RunLog run = running(2);
  run.trials[0].compute_s_per_step = 9;
  run.trials[0].result.steps = 5;
  EXPECT_DOUBLE_EQ(share_done(run), 0.45);
  run.trials[1].result.state = TrialState::done;
  run.trials[1].result.steps = 10;
  EXPECT_DOUBLE_EQ(share_done(run), 0.55);
}

TEST(Screen, WhatFailedTrialsLeaveIsNotWaitedFor) {
  RunLog run = running(2);
  run.trials[0].result.steps = 10;
  run.trials[1].result.steps = 2;
  run.trials[1].result.state = TrialState::failed;
  EXPECT_DOUBLE_EQ(share_done(run), 1);
}

TEST(Screen, BeforeTheFirstStepNothingIsForetold) {
  EXPECT_EQ(screen_lines(running(1), {}).back(), "0 of 1 trials ended, 0 % done");
}

TEST(Screen, FitsTheTerminal) {
  const RunLog run = running(20);
  for (const int rows : {3, 5, 10, 21, 22, 23, 40}) {
    const auto lines = screen_lines(run, {.columns = 80, .rows = rows});
    EXPECT_LT(lines.size(), static_cast<std::size_t>(rows));
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(std::min(rows - 1, 21)));
  }
  EXPECT_EQ(screen_lines(run, {.columns = 80, .rows = 5}),
            (Lines{"trial 0  step  0/10", "trial 1  step  0/10", "and 18 more",
                   "0 of 20 trials ended, 0 % done"}));
  EXPECT_EQ(screen_lines(run, {.columns = 12, .rows = 3}), (Lines{"and 20 more", "0 of 20 tri"}));
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
  // Both run: three lines, over which the next picture goes.
  EXPECT_NE(text.find("trial 1  step  0/10\n0 of 2 trials ended, 0 % done\n\x1b[3F\x1b[J"),
            std::string::npos);
  EXPECT_NE(text.find("trial 1  failed   out of luck\n"), std::string::npos) << text;
  EXPECT_NE(text.find("trial 0  done     step  2/10  loss 3.5000"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\x1b[1F\x1b[J")) << "nothing of the picture stays";
}

TEST(Screen, LinesHaveNoEscapes) {
  std::ostringstream out;
  show_all(*make_line_progress(out));
  const auto text = out.str();
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
}

TEST(Screen, NamesCannotControlTheTerminal) {
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

TEST(Screen, WideNamesFitToo) {
  RunLog run = running(1);
  run.trials[0].result.name = "\xE4\xB8\xAD\xE6\x96\x87";
  EXPECT_EQ(screen_lines(run, {.columns = 4, .rows = 9})[0], "\xE4\xB8\xAD");
  EXPECT_EQ(screen_lines(run, {})[0], "\xE4\xB8\xAD\xE6\x96\x87  step  0/10");
}

}  // namespace
}  // namespace spillway::testing
