#include "apps/commands/results_command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/commands/train_command.h"
#include "runs/log/event_json.h"
#include "runs/log/event_log.h"
#include "spillway/error.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/made_up_run.h"
#include "tests/support/run/measured_costs.h"
#include "tests/support/run/small_sweep.h"
#include "trainer/storage/run_lock.h"

namespace spillway::testing {
namespace {

class ResultsCommand : public ::testing::Test {
 protected:
  std::string trained(bool json, const std::string& override = "") {
    TrainOptions options{
        .config_file = write_small_sweep(folder_), .json = json, .pilot_cache = measured_costs()};
    options.overrides = {"train.max_grad_norm=0"};
    if (!override.empty()) options.overrides.push_back(override);
    std::ostringstream out, log;
    train(options, out, log, {});
    return out.str();
  }
  std::string results(bool json, const std::string& name = "out") {
    std::ostringstream out, log;
    EXPECT_EQ(spillway::results({.folder = folder_ / name, .json = json}, out, log), kDone);
    EXPECT_EQ(log.str(), "");
    return out.str();
  }

  TemporaryFolder folder_;
};

TEST_F(ResultsCommand, PrintsWhatTrainPrinted) {
  const auto printed = trained(false);
  const auto again = results(false);
  EXPECT_TRUE(again.starts_with("\n  trial "));
  EXPECT_NE(again.find("planned"), std::string::npos);
  EXPECT_TRUE(printed.ends_with(again)) << printed << "\nand\n" << again;
}

TEST_F(ResultsCommand, PrintsTheDocumentOfTrain) {
  const auto printed = trained(true);
  EXPECT_EQ(results(true), printed);
  EXPECT_EQ(Json::parse(printed)["state"], "ended");
}

TEST_F(ResultsCommand, ReadsFailuresBack) {
  const auto printed =
      trained(true, "sweep={parameters: {train.learning_rate: {values: [1e-3, 9e5]}}}");
  EXPECT_EQ(Json::parse(printed)["trials"][1]["state"], "failed");
  EXPECT_EQ(results(true), printed);
}

/// The first events of a run whose log is written, and then is not.
TEST_F(ResultsCommand, PrintsWhatIsKnownOfARunWithoutAnEnd) {
  {
    const RunLock lock(folder_.path());
    EventLog log(folder_ / kEventFile);
    log.add(made_up_run_event(2));
    for (const auto& event : made_up_events()) log.add(to_json(event));
    log.flush();
    EXPECT_NE(results(false, "").find("This run is still running; above is its state after 4.0 s"),
              std::string::npos);
    EXPECT_EQ(Json::parse(results(true, ""))["state"], "running");
  }
  const auto text = results(false, "");
  EXPECT_NE(text.find("Continue with: spillway resume '" + folder_ / "" + "'\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("was interrupted or killed"), std::string::npos) << text;
  EXPECT_NE(text.find("t1 failed: out of luck"), std::string::npos) << text;
  const Json json = Json::parse(results(true, ""));
  EXPECT_EQ(json["state"], "unfinished");
  EXPECT_EQ(json["trials"][0]["final_loss"], 3.5);
  EXPECT_TRUE(json["wall_s"].is_null());
  EXPECT_TRUE(json["devices"].is_null());
}

TEST_F(ResultsCommand, SkipsAndNamesDamagedLines) {
  {
    EventLog log(folder_ / kEventFile);
    log.add(made_up_run_event(2));
    for (const auto& event : made_up_events()) log.add(to_json(event));
    log.flush();
  }
  std::string text = folder_.read(kEventFile);
  text[text.find("4.5")] = '7';  // a loss that nobody had
  folder_.write(kEventFile, text);
  std::ostringstream out, log;
  EXPECT_EQ(spillway::results({.folder = folder_ / "", .json = true}, out, log), kTrialFailed);
  EXPECT_EQ(Json::parse(out.str())["trials"][0]["final_loss"], 3.5);
  EXPECT_EQ(out.str().find("7.5"), std::string::npos);
  EXPECT_NE(log.str().find("line 4 does not match its hash"), std::string::npos) << log.str();
}

}  // namespace
}  // namespace spillway::testing
