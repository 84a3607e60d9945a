#include "apps/event_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "apps/event_json.h"
#include "apps/report.h"
#include "core/error.h"
#include "tests/support/made_up_run.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace spillway::testing {
namespace {

/// The lines of a whole run.
std::vector<Json> made_up_lines() {
  std::vector<Json> lines{made_up_run_event(2)};
  for (const auto& event : made_up_events()) lines.push_back(to_json(event));
  lines.push_back(end_event(made_up_totals()));
  return lines;
}

std::string text_of(const std::vector<Json>& lines) {
  std::string text;
  for (const auto& line : lines) text += to_line(line);
  return text;
}

std::string error_of(const TemporaryFolder& folder, const std::string& text) {
  folder.write(kEventFile, text);
  return thrown<ConfigError>([&] { read_run(folder.path()); }).what();
}

TEST(EventLog, WhatIsReadIsWhatWasWritten) {
  const TemporaryFolder folder;
  EventLog log(folder / kEventFile);
  for (const auto& line : made_up_lines()) log.add(line);
  log.flush();
  const auto read = read_run(folder.path());
  EXPECT_EQ(json_report(read, RunState::ended), json_report(log.run(), RunState::ended));
  EXPECT_EQ(results_csv(read), results_csv(log.run()));
  EXPECT_EQ(plan_json(read), plan_json(log.run()));
  EXPECT_EQ(metrics_csv(read.trials[0]), metrics_csv(log.run().trials[0]));
}

TEST(EventLog, SaysWhatHappened) {
  RunLog run;
  for (const auto& line : made_up_lines()) run.apply(line);
  const auto& first = run.trials[0];
  EXPECT_EQ(first.result.state, TrialState::done);
  EXPECT_EQ(first.result.steps, 2);
  EXPECT_EQ(first.result.first_loss, 4.5);
  EXPECT_EQ(first.result.final_loss, 3.5);
  EXPECT_EQ(first.result.eval_loss, 3.75);
  EXPECT_EQ(first.result.weights_xxh3, "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(run.trials[1].result.state, TrialState::failed);
  EXPECT_EQ(run.trials[1].result.reason, "out of luck");
  EXPECT_EQ(run.trials[1].result.final_loss, std::nullopt);
  EXPECT_EQ(run.actual->wall_s, 9.5);
  EXPECT_EQ(run.begin_s, 1);
}

/// What devices do is in the log; of it, a run has the lanes.
TEST(EventLog, DevicesComeAndGoAndTrialsAreResized) {
  RunLog run;
  run.apply(made_up_run_event(1));
  using Kind = SessionEvent::Kind;
  run.apply(to_json(SessionEvent{.sequence = 1, .kind = Kind::joined, .device = 2}));
  const SessionEvent lost{
      .sequence = 2, .time_s = 3, .kind = Kind::lost, .device = 1, .reason = "it failed"};
  EXPECT_EQ(to_json(lost), (Json{{"event", "lost"},
                                 {"sequence", 2},
                                 {"time_s", 3.0},
                                 {"device", 1},
                                 {"reason", "it failed"}}));
  run.apply(to_json(lost));
  run.apply(
      to_json(SessionEvent{.sequence = 3, .trial = JobId(0), .kind = Kind::redone, .step = 4}));
  run.apply(to_json(SessionEvent{
      .sequence = 4, .trial = JobId(0), .kind = Kind::resized, .lanes = 3, .step = 4}));
  EXPECT_EQ(run.sequence, 4u);
  EXPECT_EQ(run.trials[0].result.lanes, 3);
  EXPECT_EQ(run.trials[0].result.steps, 0);
}

/// An evaluation belongs to the step whose weights it saw, also one without a line of its own.
TEST(EventLog, MetricsHaveALineAStep) {
  RunLog run;
  for (const auto& line : made_up_lines()) run.apply(line);
  EXPECT_EQ(metrics_csv(run.trials[0]),
            "step,loss,learning_rate,gradient_norm,tokens_per_s,time_s,eval_loss\r\n"
            "1,4.5,0.01,2,100,2,4.25\r\n"
            "2,3.5,0.005,1.5,120,3,3.75\r\n");
  EXPECT_EQ(metrics_csv(run.trials[1]),
            "step,loss,learning_rate,gradient_norm,tokens_per_s,time_s,eval_loss\r\n");
}

TEST(EventLog, ALastLineWithoutItsEndDoesNotCount) {
  const TemporaryFolder folder;
  const auto lines = made_up_lines();
  const std::string text = text_of(lines);
  const std::size_t first_line = to_line(lines[0]).size();
  for (std::size_t size = first_line; size < text.size(); ++size) {
    folder.write(kEventFile, text.substr(0, size));
    const auto run = read_run(folder.path());
    const auto whole = std::count(text.begin(), text.begin() + static_cast<long>(size), '\n');
    ASSERT_EQ(run.sequence, whole - 1) << size;
    ASSERT_FALSE(run.actual) << size;
  }
  const auto error = error_of(folder, text.substr(0, first_line - 1));
  EXPECT_NE(error.find("has no whole line"), std::string::npos) << error;
}

TEST(EventLog, ADamagedLineIsNamed) {
  const TemporaryFolder folder;
  auto lines = made_up_lines();
  std::string text = text_of(lines);
  const auto third = to_line(lines[0]).size() + to_line(lines[1]).size();
  text.erase(third + 10, 5);
  EXPECT_NE(error_of(folder, text).find(folder / kEventFile + ", line 3: "), std::string::npos);
  lines.erase(lines.begin() + 4);
  const auto missing = error_of(folder, text_of(lines));
  EXPECT_NE(missing.find("line 5: events are missing"), std::string::npos) << missing;
}

TEST(EventLog, NoLineMayLackAnything) {
  const TemporaryFolder folder;
  const auto whole = made_up_lines();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Json line = whole[i];
    for (const auto& [key, value] : line.items()) {
      // A name for people; devices stand in the totals; what not every trial has.
      if (key == "reason" || key == "weights_xxh3" || (i == 0 && key == "devices")) continue;
      if (key == "time_s" && i + 1 == whole.size()) continue;
      auto lines = whole;
      lines[i].erase(key);
      const auto error = error_of(folder, text_of(lines));
      EXPECT_NE(error.find(", line " + std::to_string(i + 1) + ": "), std::string::npos)
          << key << " " << error;
      lines[i] = line;
      lines[i][key] = Json::object({{"of no", "type"}});
      EXPECT_NE(error_of(folder, text_of(lines)).find(", line "), std::string::npos) << key;
    }
  }
}

TEST(EventLog, OrderIsChecked) {
  const auto lines = made_up_lines();
  const auto problem = [&](std::vector<Json> some) {
    return thrown<Error>([&] {
             RunLog run;
             for (const auto& line : some) run.apply(line);
           })
        .what();
  };
  EXPECT_STREQ(problem({lines[1]}), "comes before the event that begins the run");
  EXPECT_STREQ(problem({lines[0], lines[0]}), "begins a second run");
  EXPECT_STREQ(problem({lines[0], lines.back(), lines[1]}), "comes after the end of the run");
  Json newer = lines[0];
  newer["format"] = 2;
  EXPECT_STREQ(problem({newer}), "is of format 2, not 1");
  Json stranger = lines[1];
  stranger["trial"] = 7;
  EXPECT_STREQ(problem({lines[0], stranger}), "names a trial that is not there");
}

TEST(EventLog, IsLiveWhileItIsWritten) {
  const TemporaryFolder folder;
  EXPECT_FALSE(is_live(folder / kEventFile));
  {
    const EventLog log(folder / kEventFile);
    EXPECT_TRUE(is_live(folder / kEventFile));
  }
  EXPECT_FALSE(is_live(folder / kEventFile));
}

/// Numbers beside each other; a run that was not simulated has no planned ones.
TEST(EventLog, ThePlanStandsBesideWhatCame) {
  RunLog run;
  for (const auto& line : made_up_lines()) run.apply(line);
  const Json both = Json::parse(plan_json(run));
  EXPECT_EQ(both["wall_s"], (Json{{"planned", 8.0}, {"actual", 9.5}}));
  EXPECT_EQ(both["devices"][0]["peak_bytes"], (Json{{"planned", 900}, {"actual", 1000}}));
  run.planned.reset();
  EXPECT_EQ(Json::parse(plan_json(run))["wall_s"], (Json{{"planned", nullptr}, {"actual", 9.5}}));
}

TEST(EventLog, ReadsRunsOnly) {
  const TemporaryFolder folder;
  folder.write("file", "x");
  const auto problem = [&](const std::string& name) {
    return std::string(thrown<ConfigError>([&] { read_run(folder / name); }).what());
  };
  EXPECT_NE(problem("nowhere").find("nowhere' does not exist; name the folder"), std::string::npos);
  EXPECT_NE(problem("file").find("file' is a file; name the folder"), std::string::npos);
  EXPECT_NE(problem("").find("no file events.jsonl"), std::string::npos);
}

TEST(EventLog, CannotBeMadeWhereNothingCan) {
  EXPECT_THROW(EventLog("/proc/spillway/events.jsonl"), IoError);
}

TEST(EventLog, AFullDiskIsSaid) {
  EventLog log("/dev/full");
  log.add(made_up_run_event(1));
  EXPECT_EQ(thrown<IoError>([&] { log.flush(); }).code, ENOSPC);
}

}  // namespace
}  // namespace spillway::testing
