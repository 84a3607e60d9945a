#include "runs/log/event_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "apps/report/report.h"
#include "runs/log/event_json.h"
#include "runs/log/event_line.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/made_up_run.h"

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
  for (const auto& line : lines) text += event_line(line);
  return text;
}

LoggedRun read(const TemporaryFolder& folder, const std::string& text) {
  folder.write(kEventFile, text);
  return read_log(folder.path());
}

std::string error_of(const TemporaryFolder& folder, const std::string& text) {
  folder.write(kEventFile, text);
  return thrown<ConfigError>([&] { read_run(folder.path()); }).what();
}

TEST(EventLog, ReadsWhatItWrote) {
  const TemporaryFolder folder;
  EventLog log(folder / kEventFile);
  for (const auto& line : made_up_lines()) log.add(line);
  log.flush();
  const auto [read, damage] = read_run(folder.path());
  EXPECT_TRUE(damage.empty());
  EXPECT_EQ(json_report(read, "", RunState::ended), json_report(log.run(), "", RunState::ended));
  EXPECT_EQ(results_csv(read), results_csv(log.run()));
  EXPECT_EQ(plan_json(read), plan_json(log.run()));
}

TEST(EventLog, TellsWhatHappened) {
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
TEST(EventLog, KnowsDevicesAndResizes) {
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
  const SessionEvent host{.sequence = 4, .kind = Kind::lost, .host = 2, .reason = "it is silent"};
  EXPECT_EQ(to_json(host).at("host"), 2);
  EXPECT_FALSE(to_json(host).contains("trial"));
  run.apply(to_json(host));
  run.apply(to_json(SessionEvent{
      .sequence = 5, .trial = JobId(0), .kind = Kind::resized, .lanes = 3, .step = 4}));
  EXPECT_EQ(run.sequence, 5u);
  EXPECT_EQ(run.trials[0].result.lanes, 3);
  EXPECT_EQ(run.trials[0].result.steps, 0);
}

/// A checkpoint of a long trial knows its last steps, and how it began.
TEST(EventLog, AcceptsAResumedTrialThatKnowsOnlyItsLastSteps) {
  SessionEvent event = made_up_event(1, 1, 0, SessionEvent::Kind::resumed);
  event.step = 5;
  const TrialResult result{.first_loss = 9,
                           .dropped_steps = 3,
                           .losses = {4, 3, 2},  // the trial has gone on meanwhile
                           .gradient_norms = {1, 1, 1},
                           .eval_losses = {{2, 7}, {4, 4.5}, {5, 3.5}},
                           .eval_metrics = {{4, {{"accuracy", 0.5}}}, {5, {{"accuracy", 1}}}}};
  const Json json = resumed_event(event, result, {});
  EXPECT_EQ(json["steps"].size(), 2u);
  RunLog run;
  run.apply(made_up_run_event(1));
  run.apply(json);
  const TrialResult& read = run.trials[0].result;
  EXPECT_EQ(read.steps, 5);
  EXPECT_EQ(read.first_loss, 9);
  EXPECT_EQ(read.final_loss, 3);
  EXPECT_EQ(read.eval_loss, 4.5);
  EXPECT_EQ(read.metrics, (Metrics{{"accuracy", 0.5}}));
  Json wrong = json;
  wrong["sequence"] = 2;
  wrong["dropped"] = 2;
  EXPECT_STREQ(thrown<Error>([&] { run.apply(wrong); }).what(), "has 4 steps, not 5");
}

TEST(EventLog, IgnoresALastLineWithoutItsEnd) {
  const TemporaryFolder folder;
  const auto lines = made_up_lines();
  const std::string text = text_of(lines);
  const std::size_t first_line = event_line(lines[0]).size();
  for (std::size_t size = first_line; size < text.size(); ++size) {
    folder.write(kEventFile, text.substr(0, size));
    const auto [run, damage] = read_run(folder.path());
    ASSERT_TRUE(damage.empty()) << size;
    const auto whole = std::count(text.begin(), text.begin() + static_cast<long>(size), '\n');
    ASSERT_EQ(run.sequence, whole - 1) << size;
    ASSERT_FALSE(run.actual) << size;
  }
  const auto error = error_of(folder, text.substr(0, first_line - 1));
  EXPECT_NE(error.find("has no complete line"), std::string::npos) << error;
}

/// Every byte of a log, with every other value of one bit.
TEST(EventLog, DetectsEveryDamagedByte) {
  const TemporaryFolder folder;
  const auto lines = made_up_lines();
  const std::string text = text_of(lines);
  const std::size_t header = event_line(lines[0]).size();
  const auto whole = json_report(read(folder, text).run, "", RunState::ended);
  for (std::size_t i = header; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 7)));
    const LoggedRun found = read(folder, damaged);
    const bool is_end = i + 1 == text.size();  // then the line is torn
    ASSERT_TRUE(is_end || !found.damage.empty()) << i;
    ASSERT_EQ(found.run.trials.size(), 2u) << i;
  }
  EXPECT_EQ(json_report(read(folder, text).run, "", RunState::ended), whole);
}

TEST(EventLog, SkipsAndNamesDamagedLines) {
  const TemporaryFolder folder;
  auto lines = made_up_lines();
  std::string text = text_of(lines);
  text.erase(event_line(lines[0]).size() + event_line(lines[1]).size() + 10, 5);
  const LoggedRun found = read(folder, text);
  EXPECT_EQ(found.damage, std::vector<std::string>{"line 3 does not match its hash"});
  EXPECT_EQ(found.run.sequence, 8u);
  EXPECT_EQ(found.run.trials[0].result.state, TrialState::done);
  lines.erase(lines.begin() + 4);
  EXPECT_EQ(read(folder, text_of(lines)).damage,
            std::vector<std::string>{"events 4 to 4 are missing before line 5"});
}

TEST(EventLog, CountsARepeatedLineOnce) {
  const TemporaryFolder folder;
  auto lines = made_up_lines();
  lines.insert(lines.begin() + 4, lines[3]);
  const LoggedRun found = read(folder, text_of(lines));
  EXPECT_EQ(found.damage, std::vector<std::string>{"line 5 is event 3, but event 4 is next"});
  EXPECT_TRUE(found.run.actual);
}

TEST(EventLog, KnowsNoTrialWithoutItsFirstLine) {
  const TemporaryFolder folder;
  std::string text = text_of(made_up_lines());
  text[20] ^= 1;
  const auto error = error_of(folder, text);
  EXPECT_NE(error.find("line 1 does not match its hash"), std::string::npos) << error;
  EXPECT_NE(error.find("'spillway resume "), std::string::npos) << error;
  EXPECT_TRUE(read_log(folder.path()).run.trials.empty());
}

/// However long it is.
TEST(EventLog, CutsOffATornLineBeforeTheNextEvent) {
  const TemporaryFolder folder;
  const std::string whole = event_line(made_up_run_event(1));
  for (const std::size_t torn :
       {std::size_t{0}, std::size_t{1}, std::size_t{65'536}, std::size_t{300'000}}) {
    const LoggedRun before = read(folder, whole + std::string(torn, 'x'));
    EventLog log(folder / kEventFile, before);
    log.add(to_json(made_up_events()[0]));
    log.flush();
    EXPECT_EQ(folder.read(kEventFile), whole + event_line(to_json(made_up_events()[0]))) << torn;
  }
}

/// Also where the line is lost that says that a later program goes on.
TEST(EventLog, ReplacesDamagedLinesWhenItContinues) {
  const TemporaryFolder folder;
  auto lines = made_up_lines();
  lines.push_back(Json{
      {"event", "restart"},
      {"planned", nullptr},
      {"trials", {{{"trial", 0}, {"num_shards", 2}, {"lanes", 1}, {"order", "shard_major"}}}}});
  lines.push_back(to_json(SessionEvent{
      .sequence = 9, .trial = JobId(0), .kind = SessionEvent::Kind::redone, .step = 1}));
  std::vector<std::string> texts;
  for (const auto& line : lines) texts.push_back(event_line(line));
  for (std::size_t first = 1; first + 1 < lines.size(); ++first) {
    for (std::size_t last = first; last + 1 < lines.size(); ++last) {
      std::string text;
      for (std::size_t i = 0; i < lines.size(); ++i)
        text += i < first || i > last ? texts[i] : "x" + texts[i];
      LoggedRun damaged = read(folder, text);
      ASSERT_EQ(damaged.damage.size(), last - first + 1) << first << " to " << last;
      {
        EventLog log(folder / kEventFile, std::move(damaged));
        log.add(to_json(SessionEvent{
            .sequence = 10, .trial = JobId(0), .kind = SessionEvent::Kind::redone, .step = 1}));
        log.flush();
      }
      const LoggedRun repaired = read_log(folder.path());
      ASSERT_TRUE(repaired.damage.empty()) << repaired.damage.front();
      ASSERT_EQ(repaired.run.sequence, 10u);
      ASSERT_FALSE(repaired.run.actual);
    }
  }
}

TEST(EventLog, RefusesANewerFormat) {
  const TemporaryFolder folder;
  Json first = made_up_run_event(1);
  first["format"] = 4;
  EXPECT_NE(error_of(folder, event_line(first)).find("the log has format version 4"),
            std::string::npos);
}

/// As programs before this one have written them.
TEST(EventLog, ReadsLinesOfFormat1WithoutAHash) {
  const TemporaryFolder folder;
  auto lines = made_up_lines();
  lines[0]["format"] = 1;
  std::string text;
  for (const auto& line : lines) text += to_line(line);
  EXPECT_TRUE(read(folder, text).damage.empty());
  lines[0]["format"] = 2;
  text.clear();
  for (const auto& line : lines) text += to_line(line);
  EXPECT_EQ(read(folder, text).damage.front(), "line 1 has no hash");
}

/// Programs that knew those formats refuse it from then on.
TEST(EventLog, ConvertsAnEarlierFormatWhenARunContinues) {
  for (const int format : {1, 2, kEventFormat}) {
    const TemporaryFolder folder;
    auto lines = made_up_lines();
    const std::string expected = text_of(lines);
    lines[0]["format"] = format;
    std::string text;
    for (const auto& line : lines) text += format == 1 ? to_line(line) : event_line(line);
    LoggedRun before = read(folder, text);
    { const EventLog log(folder / kEventFile, std::move(before)); }
    EXPECT_EQ(folder.read(kEventFile), expected) << format;
  }
}

Json added_trial(int number) {
  Json event = made_up_run_event(number + 1);
  return {{"event", "added"}, {"trials", Json::array({event["trials"][at(number)]})}};
}

TEST(EventLog, AcceptsMoreTrials) {
  RunLog run;
  for (const auto& line : made_up_lines()) run.apply(line);
  ASSERT_TRUE(run.actual);
  run.apply(added_trial(2));
  EXPECT_FALSE(run.actual);
  ASSERT_EQ(run.trials.size(), 3u);
  EXPECT_EQ(run.trials[2].result.name, "trial 2");
  EXPECT_EQ(run.trials[2].result.state, TrialState::waiting);
  EXPECT_EQ(run.trials[0].result.state, TrialState::done);
  run.apply(to_json(
      SessionEvent{.sequence = 9, .trial = JobId(2), .kind = SessionEvent::Kind::step, .step = 1}));
  EXPECT_EQ(run.trials[2].result.steps, 1);
  EXPECT_STREQ(thrown<Error>([&] { run.apply(added_trial(1)); }).what(),
               "adds the trial 'trial 1' again");
  EXPECT_STREQ(thrown<Error>([&] {
                 run.apply({{"event", "added"}, {"trials", Json::array()}});
               }).what(),
               "names no trials");
}

TEST(EventLog, KnowsThatACloneIsExtendedLikeItsSource) {
  RunLog run;
  run.apply(made_up_run_event(2));
  run.apply(extended_event(1, 30, LrExtension::restart));
  for (const int source : {0, 1}) {
    Json clone = added_trial(2 + source);
    clone["trials"][0]["clone_of"] = source;
    run.apply(clone);
  }
  EXPECT_FALSE(run.trials[2].extended_alone);
  EXPECT_FALSE(run.trials[2].extension);
  EXPECT_TRUE(run.trials[3].extended_alone);
  EXPECT_EQ(run.trials[3].extension, LrExtension::restart);
  Json clone_of_none = added_trial(4);
  clone_of_none["trials"][0]["clone_of"] = 4;
  EXPECT_STREQ(thrown<Error>([&] { run.apply(clone_of_none); }).what(),
               "clones a trial that does not exist");
}

TEST(EventLog, AcceptsMoreStepsForATrialThatStartsAgain) {
  RunLog run;
  run.apply(made_up_run_event(2));
  Json again{{"trial", 1}, {"num_shards", 2}, {"lanes", 1}, {"order", "shard_major"}};
  const auto restart = [&] {
    run.apply({{"event", "restart"}, {"planned", nullptr}, {"trials", {again}}});
  };
  restart();  // as earlier programs wrote it
  EXPECT_EQ(run.trials[1].max_steps, 10);
  again.update({{"max_steps", 30}, {"extended_from", {10, 20}}});
  restart();
  EXPECT_EQ(run.trials[1].max_steps, 30);
  EXPECT_EQ(run.trials[1].extended_from, (std::vector<std::int64_t>{10, 20}));
  EXPECT_EQ(run.trials[0].max_steps, 10);
}

TEST(EventLog, RefusesALineThatLacksAnything) {
  const auto whole = made_up_lines();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Json line = whole[i];
    for (const auto& [key, value] : line.items()) {
      // A name for people; devices stand in the totals; what not every trial has.
      if (key == "reason" || key == "weights_xxh3" || (i == 0 && key == "devices")) continue;
      if (key == "time_s" && i + 1 == whole.size()) continue;
      for (const bool is_there : {false, true}) {
        const bool is_new = key == "copy_wait_s" || key == "h2d_shared_bytes";
        if (is_new && !is_there) continue;  // programs before did not write it
        Json wrong = line;
        wrong.erase(key);
        if (is_there) wrong[key] = Json::object({{"of no", "type"}});
        RunLog run;
        for (std::size_t before = 0; before < i; ++before) run.apply(whole[before]);
        EXPECT_THROW(run.apply(wrong), Error) << key;
      }
    }
  }
}

TEST(EventLog, ChecksTheOrder) {
  const auto lines = made_up_lines();
  const auto problem = [&](std::vector<Json> some) {
    return thrown<Error>([&] {
             RunLog run;
             for (const auto& line : some) run.apply(line);
           })
        .what();
  };
  EXPECT_STREQ(problem({lines[1]}), "comes before the event that starts the run");
  EXPECT_STREQ(problem({lines[0], lines[0]}), "starts a second run");
  EXPECT_STREQ(problem({lines[0], lines.back(), lines[1]}), "comes after the end of the run");
  Json newer = lines[0];
  newer["format"] = 4;
  EXPECT_STREQ(problem({newer}), "has the unknown format 4");
  Json stranger = lines[1];
  stranger["trial"] = 7;
  EXPECT_STREQ(problem({lines[0], stranger}), "names a trial that does not exist");
}

TEST(EventLog, DetectsItsRemoval) {
  const TemporaryFolder folder;
  for (const bool replaced : {false, true}) {
    EventLog log(folder / kEventFile);
    log.add(made_up_run_event(1));
    log.flush();
    std::filesystem::remove(folder / kEventFile);
    if (replaced) folder.write(kEventFile, "");
    log.add(to_json(made_up_events()[0]));
    const std::string error = thrown<Error>([&] { log.flush(); }).what();
    EXPECT_NE(error.find("was removed or replaced during the run"), std::string::npos);
  }
}

/// Numbers beside each other; a run that was not simulated has no planned ones.
TEST(EventLog, KeepsThePlanBesideTheResult) {
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
  EXPECT_NE(problem("").find("it has no events.jsonl"), std::string::npos);
}

TEST(EventLog, RefusesAPlaceThatCannotHoldIt) {
  EXPECT_THROW(EventLog("/proc/spillway/events.jsonl"), IoError);
}

TEST(EventLog, ReportsAFullDisk) {
  EventLog log("/dev/full");
  log.add(made_up_run_event(1));
  EXPECT_EQ(thrown<IoError>([&] { log.flush(); }).code, ENOSPC);
}

}  // namespace
}  // namespace spillway::testing
