#include "apps/commands/plan_command.h"

#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "apps/commands/train_command.h"
#include "apps/plan/plan_report.h"
#include "apps/terminal/failure.h"
#include "runs/config/config.h"
#include "runs/config/findings.h"
#include "tests/support/check/measured.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/measured_costs.h"
#include "tests/support/run/small_sweep.h"

namespace spillway::testing {
namespace {

using Json = nlohmann::json;

class PlanCommand : public ::testing::Test {
 protected:
  PlanCommand() {
    options_.config_file = write_small_sweep(folder_);
    options_.pilot_cache = measured_costs();
  }
  Json planned(ExitCode expected = kDone) {
    std::ostringstream out;
    options_.json = true;
    EXPECT_EQ(plan(options_, out), expected);
    return Json::parse(out.str());
  }
  Json trained() {
    std::ostringstream out, log;
    EXPECT_EQ(train({.config_file = options_.config_file,
                     .overrides = options_.overrides,
                     .json = true,
                     .pilot_cache = measured_costs()},
                    out, log, {}),
              kDone);
    return Json::parse(out.str());
  }

  TemporaryFolder folder_;
  PlanOptions options_;
};

/// On one device what moves is known exactly.
TEST_F(PlanCommand, SaysWhatTrainingThenDoes) {
  options_.overrides = {"devices=[{memory: 720KiB}]", "sweep={}"};
  const Json plan = planned(), run = trained();
  EXPECT_EQ(plan["fits"], true);
  for (const char* key :
       {"num_shards", "order", "parameters", "virtual_nodes", "data_parallel", "steps"})
    EXPECT_EQ(plan["trials"][0][key], run["trials"][0][key]) << key;
  EXPECT_EQ(plan["host_peak_bytes"], run["host_peak_bytes"]);
  EXPECT_EQ(plan["h2d_weight_bytes"], run["h2d_weight_bytes"]);
  EXPECT_EQ(run["devices"][0]["h2d_bytes"], run["h2d_bytes"]);
  EXPECT_EQ(plan["trials"][0]["shards"].size(), plan["trials"][0]["num_shards"]);
  EXPECT_GE(plan["devices"][0]["peak_bytes"], run["devices"][0]["peak_bytes"]);
  const std::set<std::string> of_results{"state", "metric", "best"};
  for (const auto& [key, value] : run.items())
    EXPECT_TRUE(plan.contains(key) || of_results.contains(key)) << key;
}

/// With a page for each folder, as disks give space.
Bytes bytes_on_disk(const std::filesystem::path& folder) {
  Bytes bytes = 4_KiB;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    bytes += round_up(entry.file_size(), 4_KiB);
  return bytes;
}

TEST_F(PlanCommand, SaysWhatCheckpointsTakeOnDisk) {
  options_.overrides = {"checkpoint={keep: 3, every_steps: 1}"};
  const Json plan = planned(), run = trained();
  EXPECT_GT(plan["disk_free_bytes"], 0);
  Bytes all = 0, weights = 0;
  for (std::size_t t = 0; t < 4; ++t) {
    const Bytes most = plan["trials"][t]["checkpoint_bytes"];
    EXPECT_EQ(run["trials"][t]["checkpoint_bytes"], most);
    const std::filesystem::path trial =
        folder_ / ("out/trials/" + run["trials"][t]["name"].get<std::string>());
    for (const auto& generation : std::filesystem::directory_iterator(trial / "checkpoints"))
      EXPECT_EQ(bytes_on_disk(generation.path()), most / 4) << "three and one that is written";
    all += most;
    weights += std::filesystem::file_size(trial / "weights.safetensors");
  }
  EXPECT_EQ(plan["checkpoint_bytes"], all);
  EXPECT_LE(plan["weights_bytes"], weights);
  EXPECT_NEAR(plan["weights_bytes"].get<double>(), static_cast<double>(weights), 4 * 8192.0);
}

TEST_F(PlanCommand, SaysThatCheckpointsHaveNoRoom) {
  options_.overrides = {"output_dir=/proc/run"};  // a disk without any
  const Json full = planned(kDoesNotFit);
  EXPECT_EQ(full["fits"], false);
  EXPECT_EQ(full["disk_free_bytes"], 0);
  EXPECT_EQ(full["trials"][0]["fits"], true);
  options_.overrides.push_back("checkpoint.keep=0");
  const Json none = planned();
  EXPECT_EQ(none["fits"], true);
  EXPECT_EQ(none["checkpoint_bytes"], 0);
}

/// Of what is reserved only what is used counts.
TEST_F(PlanCommand, FitsLargeBudgetsOnASmallMachine) {
  options_.overrides = {"host_memory=8TiB", "devices=[{memory: 1TiB}, {memory: 1TiB}]"};
  EXPECT_EQ(planned()["memory"]["total_bytes"], host_memory().total);
}

TEST_F(PlanCommand, RefusesARunThatFitsItsBudgetsAndNotThisMachine) {
  options_.overrides = {"scheduling.sharing=none"};  // else it is given up first
  const Bytes needed = planned()["memory"]["needed_bytes"];
  options_.machine = {.total = needed, .available = needed};
  EXPECT_EQ(planned()["fits"], true);
  options_.machine.total = needed - 1;
  const Json refused = planned(kDoesNotFit);
  EXPECT_EQ(refused["fits"], false);
  EXPECT_EQ(refused["trials"][0]["fits"], true);
  const std::string sentence = "the run fits its budgets, not this machine: it needs " +
                               format_bytes(needed) + " of memory (";
  EXPECT_EQ(refused["reason"].get<std::string>().find(sentence), 0u) << refused["reason"];
  options_.json = false;
  std::ostringstream out;
  EXPECT_EQ(plan(options_, out), kDoesNotFit);
  EXPECT_NE(out.str().find(sentence), std::string::npos) << out.str();
}

TEST_F(PlanCommand, BoundsTrainingByThisMachineToo) {
  std::ostringstream out, log;
  options_.overrides = {"scheduling.sharing=none"};
  const Bytes needed = planned()["memory"]["needed_bytes"];
  TrainOptions train_options{.config_file = options_.config_file,
                             .overrides = {"train.max_steps=1", "scheduling.sharing=none"},
                             .machine = {.total = needed - 1, .available = needed - 1}};
  const auto small = thrown<MachineTooSmall>([&] { train(train_options, out, log, {}); });
  EXPECT_EQ(small.needed, needed);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  EXPECT_EQ(failure_of(small).code, kDoesNotFit);
  train_options.machine = {.total = needed, .available = needed - 1};
  EXPECT_EQ(train(train_options, out, log, {}), kDone);
  EXPECT_NE(log.str().find("but other programs leave only "), std::string::npos) << log.str();
  std::filesystem::remove(folder_ / "out/journal.sqlite");
  const ResumeOptions again{.folder = folder_ / "out",
                            .machine = {.total = needed - 1, .available = needed - 1}};
  EXPECT_THROW(resume(again, out, log, {}), MachineTooSmall);
}

/// What a plan counts is at least what its simulation then uses.
TEST_F(PlanCommand, CountsNoLessMemoryThanTheRunUses) {
  for (const char* devices : {"[{memory: 720KiB}]", "[{memory: 1MiB}, {memory: 2MiB}]",
                              "[{memory: 64MiB}, {memory: 64MiB}, {memory: 64MiB}]"}) {
    for (const char* sweep :
         {"{}", "{parameters: {model.num_hidden_layers: {values: [1, 2, 5]}}}"}) {
      options_.overrides = {std::string("devices=") + devices, std::string("sweep=") + sweep};
      const Json json = planned();
      EXPECT_EQ(json["memory"]["offload_bytes"], json["host_peak_bytes"]);
      for (std::size_t d = 0; d < json["devices"].size(); ++d)
        EXPECT_GE(json["memory"]["device_bytes"][d], json["devices"][d]["peak_bytes"]);
    }
  }
}

TEST_F(PlanCommand, HasTheNumbersOfEachTier) {
  options_.overrides = {"sweep={}", "checkpoint.keep=1"};
  const Json in_memory = planned();
  options_.overrides.push_back("offload_path=" + folder_.path().string());
  const Json in_files = planned();
  const Json &memory = in_memory["trials"][0], &files = in_files["trials"][0];
  EXPECT_EQ(memory["host_bytes"], memory["offload_bytes"]);
  EXPECT_EQ(files["host_bytes"], 0);
  EXPECT_EQ(files["disk_bytes"].get<Bytes>(),
            memory["disk_bytes"].get<Bytes>() + memory["offload_bytes"].get<Bytes>());
  EXPECT_EQ(files["device_bytes"], files["smallest_budget_bytes"]);
  EXPECT_EQ(in_files["memory"]["offload_bytes"], 0);
  ASSERT_EQ(in_files["disks"].size(), 1u) << "output_dir lies on the same disk";
  EXPECT_EQ(in_files["disks"][0]["offload_bytes"], memory["offload_bytes"]);
  options_.overrides = {"sweep={}", "host_memory=100KiB"};
  const Json misfit = planned(kDoesNotFit)["trials"][0];
  EXPECT_GT(misfit["host_bytes"], 100 << 10);
  EXPECT_TRUE(misfit["device_bytes"].is_null());
  EXPECT_FALSE(misfit.contains("smallest_budget_bytes"));
}

TEST_F(PlanCommand, WritesNothing) {
  std::ostringstream out;
  EXPECT_EQ(plan(options_, out), kDone);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  for (const char* text :
       {"device at least", "largest unit: weights", "training state: weights", "in per step",
        " a step of a trial", "Moved: ", "Time: ", " tokens/s; an epoch of all trials takes ",
        " an evaluation; ", "Disk of ", "Memory of this machine: ", " for final weights; ",
        "learning_rate=1e-2,seed=2"})
    EXPECT_NE(out.str().find(text), std::string::npos) << text;
}

TEST_F(PlanCommand, SaysWhichDevicesTakePart) {
  options_.overrides = {
      "devices=[{memory: 2MiB}, {memory: 2MiB, imitate: {slowdown: 2}}, "
      "{memory: 2MiB, imitate: {slowdown: 90}}]",
      "train.data_parallel=3", "train.virtual_nodes=8", "sweep={}"};
  options_.estimate = true;
  const Json trial = planned()["trials"][0];
  EXPECT_EQ(trial["data_parallel"], 2);
  EXPECT_EQ(trial["devices"], (std::vector<std::string>{"cpu:0", "cpu:1"}));
  EXPECT_EQ(trial["groups"][0].get<int>() + trial["groups"][1].get<int>(), 8);
  ASSERT_EQ(trial["declined"].size(), 1u);
  options_.json = false;
  std::ostringstream out;
  EXPECT_EQ(plan(options_, out), kDone);
  for (const char* text : {"\n    split: ", " reduction groups on cpu:0, ", " on cpu:1\n",
                           "\n    cpu:2 is not used: with it a step would take about "})
    EXPECT_NE(out.str().find(text), std::string::npos) << text << " in " << out.str();
}

TEST_F(PlanCommand, SaysInTrainingWhichDevicesTakeNoPart) {
  std::ostringstream out, log;
  options_.overrides = {"devices=[{memory: 2MiB}, {memory: 2MiB, imitate: {slowdown: 40}}]",
                        "train.data_parallel=2"};
  EXPECT_EQ(
      train({.config_file = options_.config_file, .overrides = options_.overrides}, out, log, {}),
      kDone);
  const auto first = log.str().find("cpu:1 is not used: ");
  ASSERT_NE(first, std::string::npos) << log.str();
}

TEST_F(PlanCommand, ListsTrialsThatDoNotFitBesideThoseThatDo) {
  options_.overrides = {"sweep.parameters={model.hidden_size: {values: [16, 256]}}"};
  const Json json = planned(kDoesNotFit);
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["trials"][0]["fits"], true);
  EXPECT_EQ(json["trials"][1]["fits"], false);
  EXPECT_GT(json["trials"][1]["smallest_budget_bytes"], 720 << 10);
  EXPECT_GT(json["wall_s"], 0);
}

TEST_F(PlanCommand, NoticesASlowLink) {
  std::ostringstream out;
  options_.overrides = {"devices=[{memory: 720KiB, imitate: {link: 1MiB/s}}]"};
  EXPECT_EQ(plan(options_, out), kDone);
  EXPECT_NE(out.str().find("Devices wait for copies"), std::string::npos) << out.str();
  out.str("");
  options_.overrides = {"devices=[{memory: 64MiB}]"};
  EXPECT_EQ(plan(options_, out), kDone);
  EXPECT_EQ(out.str().find("Devices wait for copies"), std::string::npos) << out.str();
}

TEST_F(PlanCommand, SaysWhereThereIsNoRoomToLoadAhead) {
  const auto on_device_of = [&](Bytes memory) {
    std::ostringstream out;
    options_.json = false;
    options_.overrides = {"sweep={}", "devices=[{memory: " + std::to_string(memory) + "}]"};
    EXPECT_EQ(plan(options_, out), kDone);
    return out.str().find("no room to load the next shard") != std::string::npos;
  };
  options_.overrides = {"sweep={}", "devices=[{memory: 720KiB}]"};
  const Json trial = planned()["trials"][0];
  const Bytes ahead = trial["load_ahead_budget_bytes"], least = trial["smallest_budget_bytes"];
  ASSERT_GT(ahead, least);
  EXPECT_TRUE(on_device_of(ahead - 4096));
  EXPECT_FALSE(on_device_of(ahead));
}

TEST_F(PlanCommand, EstimatesWithoutAPilot) {
  options_.overrides = {"sweep={}", "devices=[{memory: 2MiB}]"};
  const Json measured = planned();
  EXPECT_EQ(measured["estimated"], false);
  options_.estimate = true;
  const Json estimated = planned();
  EXPECT_EQ(estimated["estimated"], true);
  const auto ratio = [&](const char* key) {
    return estimated["trials"][0][key].get<double>() / measured["trials"][0][key].get<double>();
  };
  EXPECT_EQ(ratio("training_state_bytes"), 1);
  EXPECT_GT(ratio("smallest_budget_bytes"), 0.5);
  EXPECT_LT(ratio("smallest_budget_bytes"), 2);
  options_.json = false;
  std::ostringstream out;
  EXPECT_EQ(plan(options_, out), kDone);
  EXPECT_NE(out.str().find("Estimated from shapes"), std::string::npos);
}

TEST_F(PlanCommand, KeepsMeasuredCosts) {
  options_.overrides = {"sweep={}"};
  options_.pilot_cache = folder_ / "cache/pilot.json";
  // What was measured while the machine was busier is measured again.
  EXPECT_TRUE(holds_once_in_ten([&] {
    const Json first = planned(), second = planned();
    return first["trials"][0]["compute_s_per_step"] == second["trials"][0]["compute_s_per_step"];
  }));
  EXPECT_TRUE(std::filesystem::exists(options_.pilot_cache));
}

TEST_F(PlanCommand, NamesCostsThatAreOldOrOfABusyMachine) {
  options_.overrides = {"sweep={}"};
  PlannedRun run = plan_run(options_);
  const RunResult result = run.simulate(1e5);
  const PlannedTimes times = times_of(run, result);
  const auto printed = [&](double age_s, double load) {
    TrialPlan& plan = run.rows[0].plan;
    plan.costs_measured_unix_s = std::time(nullptr) - static_cast<std::int64_t>(age_s);
    plan.costs_load = load;
    std::ostringstream out;
    print(out, {.run = run, .result = result, .advice = {}, .times = times});
    return out.str();
  };
  EXPECT_EQ(printed(60, 0.05).find("Costs measured"), std::string::npos);
  EXPECT_NE(printed(7200, 0.4).find("Costs measured up to 2:00 h ago under a load of 40 %: times "),
            std::string::npos);
  EXPECT_NE(printed(30 * 86400, 0).find("Costs measured up to 30.0 days ago under a load of 0 %\n"),
            std::string::npos);
}

TEST_F(PlanCommand, SaysWhenCostsWereMeasured) {
  EXPECT_GT(planned()["trials"][0]["costs_measured_unix_s"], 1'700'000'000);
  options_.estimate = true;
  EXPECT_EQ(planned()["trials"][0]["costs_measured_unix_s"], 0);
}

TEST_F(PlanCommand, PrintsTimesThatAgree) {
  options_.overrides = {"sweep={}", "train.max_steps=40", "train.eval_steps=5"};
  const Json json = planned(), &times = json["times"];
  const double wall_s = json["wall_s"], step_s = times["step_s"];
  EXPECT_NEAR(step_s, wall_s / 40, 1e-9);
  EXPECT_NEAR(times["samples_per_s"].get<double>(), 8 / step_s, 1e-6);
  EXPECT_NEAR(times["tokens_per_s"].get<double>(), 8 * 16 / step_s, 1e-6);
  EXPECT_GT(times["epoch_s"], 0);
  EXPECT_GT(times["training_s"], 0);
  EXPECT_GT(times["update_s"], 0);
  EXPECT_GT(times["evaluation_s"], 0);
  EXPECT_LT(times["evaluation_s"], times["training_s"]) << "forward only, of as many samples";
}

/// The bytes of weights in a step do not depend on how many steps there are.
TEST_F(PlanCommand, ExtrapolatesLongRuns) {
  options_.overrides = {"sweep={}", "train.max_steps=1000", "devices=[{memory: 720KiB}]"};
  const Json whole = planned();
  options_.overrides[1] = "train.max_steps=1000000000";
  const Json longer = planned();
  EXPECT_EQ(longer["trials"][0]["steps"], 1'000'000'000);
  const double ratio =
      longer["h2d_weight_bytes"].get<double>() / whole["h2d_weight_bytes"].get<double>();
  EXPECT_NEAR(ratio, 1e6, 1e4);
  EXPECT_GT(longer["wall_s"].get<double>(), 1000 * whole["wall_s"].get<double>());
}

TEST_F(PlanCommand, SimulatesEarlyStopping) {
  options_.overrides = {"scheduling.sharing=none",
                        "sweep.early_terminate={type: hyperband, min_iter: 2, eta: 4}"};
  const Json early = planned();
  std::vector<int> steps;
  for (const Json& trial : early["trials"]) {
    EXPECT_EQ(trial["steps"], 5);
    steps.push_back(trial["simulated_steps"]);
  }
  EXPECT_EQ(steps, (std::vector<int>{5, 2, 2, 2}));
  std::ostringstream out;
  options_.json = false;
  EXPECT_EQ(plan(options_, out), kDone);
  EXPECT_NE(out.str().find("assumes that the first trials are the best; 3 end after 2 steps, "
                           "1 ends after 5 steps\n"),
            std::string::npos)
      << out.str();
  options_.overrides.pop_back();
  EXPECT_LT(early["h2d_weight_bytes"].get<double>(),
            0.7 * planned()["h2d_weight_bytes"].get<double>());
}

TEST_F(PlanCommand, ChoosesVirtualNodesForAnyBatch) {
  options_.estimate = true;
  for (const auto& [batch, nodes] :
       {std::pair{1, 1}, {2, 2}, {6, 6}, {10, 5}, {11, 1}, {24, 8}, {32, 8}}) {
    options_.overrides = {"sweep={}", "devices=[{memory: 64MiB}]",
                          "train={batch_size: " + std::to_string(batch) + ", max_steps: 2}"};
    EXPECT_EQ(planned()["trials"][0]["virtual_nodes"], nodes) << batch;
  }
}

/// So that the run goes on with them whatever the defaults are then.
TEST_F(PlanCommand, WritesDownDefaultVirtualNodes) {
  const auto written = [&](const std::vector<std::string>& more) {
    std::vector<std::string> overrides{"devices=[{memory: 64MiB}]", "sweep={}",
                                       "train={batch_size: 6, max_steps: 1}"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    std::ostringstream out, log;
    EXPECT_EQ(train({.config_file = options_.config_file,
                     .overrides = overrides,
                     .json = true,
                     .overwrite = true},
                    out, log, {}),
              kDone);
    Findings findings;
    const TrainConfig config =
        read_config(read_yaml_file(folder_ / "out/config.yaml"), findings).train;
    return std::pair(config.virtual_nodes, config.reduction_groups);
  };
  EXPECT_EQ(written({}), std::pair(6, 6));
  EXPECT_EQ(written({"train.reduction_groups=2"}), std::pair(6, 2));
  EXPECT_EQ(written({"sweep.parameters={train.batch_size: {values: [6, 8]}}"}), std::pair(0, 0));
}

/// The folder of a sweep over batch sizes says that each has its own default.
TEST_F(PlanCommand, ResumesRunsWithDefaultVirtualNodes) {
  const std::vector<std::string> overrides{
      "devices=[{memory: 64MiB}]", "train={batch_size: 8, max_steps: 2}",
      "sweep.parameters={train.batch_size: {values: [6, 16]}}"};
  std::ostringstream out, log;
  ASSERT_EQ(train({.config_file = options_.config_file, .overrides = overrides, .json = true}, out,
                  log, {}),
            kDone);
  const Json trials = Json::parse(out.str())["trials"];
  EXPECT_EQ(trials[0]["virtual_nodes"], 6);
  EXPECT_EQ(trials[1]["virtual_nodes"], 8);
  EXPECT_EQ(resume({.folder = folder_ / "out"}, out, log, {}), kDone);
}

}  // namespace
}  // namespace spillway::testing
