#include "apps/commands/train_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/commands/results_command.h"
#include "runs/config/findings.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/measured_costs.h"
#include "tests/support/run/small_sweep.h"

namespace spillway::testing {
namespace {

using Json = nlohmann::json;

/// A sweep of four small trials that spill on both devices.
class TrainCommand : public ::testing::Test {
 protected:
  TrainCommand() {
    options_.config_file = write_small_sweep(folder_);
    options_.pilot_cache = measured_costs();
  }

  ExitCode run() {
    out_.str("");
    log_.str("");
    return train(options_, out_, log_, requests_);
  }
  bool wrote(const std::string& name) const { return std::filesystem::exists(folder_ / name); }

  TemporaryFolder folder_;
  TrainOptions options_;
  std::ostringstream out_, log_;
  Requests requests_;
};

std::vector<std::string> keys_of(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST_F(TrainCommand, WritesTheFilesThatItNames) {
  ASSERT_EQ(run(), kDone);
  EXPECT_NE(out_.str().find("Best trial: "), std::string::npos);
  EXPECT_NE(out_.str().find("Outputs: " + folder_ / "out"), std::string::npos);
  EXPECT_EQ(log_.str(), "");
  EXPECT_TRUE(wrote("out/config.yaml"));
  for (const char* trial : {"learning_rate=1e-3,seed=1", "learning_rate=1e-3,seed=2",
                            "learning_rate=1e-2,seed=1", "learning_rate=1e-2,seed=2"}) {
    EXPECT_TRUE(wrote("out/trials/" + std::string(trial) + "/weights.safetensors"));
    EXPECT_NE(out_.str().find(trial), std::string::npos);
  }
  const std::string csv = folder_.read("out/results.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_TRUE(csv.starts_with("trial,train.learning_rate,seed,state,steps,first_loss,"));
  const std::string metrics = folder_.read("out/trials/learning_rate=1e-3,seed=1/metrics.csv");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 6);
  EXPECT_TRUE(wrote("out/events.jsonl"));
  const Json plan = Json::parse(folder_.read("out/plan.json"));
  EXPECT_GT(plan["wall_s"]["planned"], 0);
  EXPECT_GT(plan["wall_s"]["actual"], 0);
}

TEST_F(TrainCommand, TracesTheRealAndThePlannedRun) {
  options_.overrides = {
      "scheduling.sharing=none"};  // when devices change hands is another question
  ASSERT_EQ(run(), kDone);
  const Json trace = Json::parse(folder_.read("out/trace.json"));
  std::map<int, std::map<std::string, int>> spans;  // by process: kinds of events and their counts
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["dur"].get<double>(), 0);
    const auto name = event["name"].get<std::string>();
    ++spans[event["pid"]][name.substr(0, name.find(' '))];
  }
  ASSERT_EQ(spans.size(), 2u);
  for (const char* name :
       {"forward", "backward", "evaluate", "load", "reduce", "commit", "update"}) {
    EXPECT_GT(spans[1][name], 0) << name;
    EXPECT_EQ(spans[1][name], spans[2][name]) << name;
  }
  EXPECT_GT(spans[1]["weights"], 0);
  EXPECT_NE(out_.str().find("planned"), std::string::npos);
}

TEST_F(TrainCommand, ReportsEarlyStoppingInAllFiles) {
  options_.overrides = {"sweep.early_terminate={type: hyperband, min_iter: 2}",
                        "sweep.parameters.train.learning_rate.values=[1e-3, 1e-6]",
                        "sweep.metric.name=final_loss"};
  options_.json = true;
  ASSERT_EQ(run(), kDone);
  int stopped = 0;
  const Json json = Json::parse(out_.str());
  for (const Json& trial : json["trials"]) {
    if (trial["state"] == "done") continue;
    EXPECT_EQ(trial["state"], "stopped early");
    EXPECT_EQ(trial["steps"], 2);
    EXPECT_TRUE(trial["reason"].get<std::string>().starts_with("at step 2 it was number "));
    EXPECT_TRUE(wrote("out/trials/" + trial["name"].get<std::string>() + "/weights.safetensors"));
    EXPECT_TRUE(trial["eval_loss"].is_number());
    ++stopped;
  }
  EXPECT_EQ(stopped, 3);
  EXPECT_NE(folder_.read("out/results.csv").find(",stopped early,2,"), std::string::npos);
  EXPECT_NE(folder_.read("out/events.jsonl").find("\"state\":\"stopped early\""),
            std::string::npos);
  EXPECT_NE(folder_.read("out/config.yaml").find("min_iter: 2\n"), std::string::npos);
  std::ostringstream shown;
  EXPECT_EQ(results({.folder = folder_ / "out"}, shown, shown), kDone);
  EXPECT_NE(shown.str().find(" stopped early: at step 2 it was number 4 of 4 by mean loss ("),
            std::string::npos)
      << shown.str();
  // Ended trials do not start again.
  EXPECT_EQ(resume({.folder = folder_ / "out"}, shown, log_, requests_), kDone);
  EXPECT_NE(log_.str().find("all trials of this run have ended"), std::string::npos);
}

TEST_F(TrainCommand, GivesDevicesOfEndedTrialsToTheLast) {
  options_.json = true;
  const std::vector<std::string> thins_out = {
      "sweep.early_terminate={type: hyperband, min_iter: 2, eta: 4}", "train.max_steps=12"};
  std::int64_t host_peak = 0;
  const auto trained = [&](const std::string& name, const std::string& setting) {
    options_.overrides = thins_out;
    options_.overrides.push_back("output_dir=" + folder_ / name);
    if (!setting.empty()) options_.overrides.push_back(setting);
    EXPECT_EQ(run(), kDone) << log_.str();
    std::map<std::string, std::string> hashes;
    std::vector<int> lanes;
    const Json json = Json::parse(out_.str());
    host_peak = json["host_peak_bytes"];
    for (const Json& trial : json["trials"]) {
      hashes[trial["name"]] = trial["weights_xxh3"];
      if (trial["state"] == "done") lanes.push_back(trial["data_parallel"]);
    }
    EXPECT_EQ(lanes.size(), 1u);
    return std::pair(hashes, lanes.front());
  };
  const auto [hashes, lanes] = trained("out", "");
  EXPECT_EQ(lanes, 2);
  const std::string config = folder_.read("out/config.yaml");
  EXPECT_NE(config.find("\n  sharing: fill\n"), std::string::npos) << config;
  EXPECT_EQ(trained("one", "devices=[{memory: 720KiB}]"), std::pair(hashes, 1));
  EXPECT_EQ(trained("chosen", "scheduling.sharing=none"), std::pair(hashes, 1));
  EXPECT_EQ(trained("least", "train.max_data_parallel=1"), std::pair(hashes, 1));
  // Host memory that holds four trials with one device each, but not with two.
  EXPECT_EQ(trained("tight", "host_memory=" + std::to_string(host_peak)), std::pair(hashes, 1));
  // The choice of the run holds when the same file resumes it.
  EXPECT_EQ(trained("out", "resume=auto"), std::pair(hashes, 2));
}

TEST_F(TrainCommand, RefusesEarlyStoppingWithoutHostMemoryAndWritesNothing) {
  options_.overrides = {"sweep.early_terminate={type: hyperband, min_iter: 2}", "host_memory=2MiB"};
  const auto error = thrown<DoesNotFit>([&] { run(); });
  EXPECT_NE(std::string(error.what()).find("all 4 trials"), std::string::npos) << error.what();
  EXPECT_FALSE(wrote("out"));
  options_.overrides[0] = "sweep.run_cap=4";
  EXPECT_EQ(run(), kDone);
}

TEST_F(TrainCommand, PrintsOneJsonDocumentWithTheseFields) {
  options_.json = true;
  ASSERT_EQ(run(), kDone);
  const Json json = Json::parse(out_.str());
  EXPECT_NE(log_.str().find("running"), std::string::npos);
  EXPECT_EQ(keys_of(json),
            (std::vector<std::string>{"best", "copy_hidden_share", "copy_s", "copy_wait_s",
                                      "d2h_bytes", "devices", "h2d_bytes", "h2d_shared_bytes",
                                      "h2d_weight_bytes", "host_budget_bytes", "host_peak_bytes",
                                      "metric", "state", "trials", "wall_s"}));
  ASSERT_EQ(json["devices"].size(), 2u);
  for (const Json& device : json["devices"]) {
    EXPECT_EQ(keys_of(device),
              (std::vector<std::string>{"activation_peak_bytes", "budget_bytes", "busy_share",
                                        "d2h_bytes", "evictions", "h2d_bytes", "kept_graphs",
                                        "kind", "loads", "ops", "peak_bytes", "prefetches"}));
    EXPECT_LE(device["peak_bytes"], 720 << 10);
  }
  ASSERT_EQ(json["trials"].size(), 4u);
  for (const Json& trial : json["trials"]) {
    EXPECT_EQ(keys_of(trial),
              (std::vector<std::string>{
                  "checkpoint_bytes", "data_parallel", "eval_loss", "final_loss", "first_loss",
                  "metric", "metrics", "name", "num_shards", "order", "parameters", "short_name",
                  "state", "steps", "sweep", "tokens_per_s", "virtual_nodes", "weights_xxh3"}));
    EXPECT_EQ(trial["state"], "done");
    EXPECT_EQ(trial["steps"], 5);
    EXPECT_EQ(trial["metric"], trial["eval_loss"]);
    EXPECT_EQ(trial["metrics"]["perplexity"], std::exp(trial["eval_loss"].get<double>()));
    EXPECT_GT(trial["num_shards"], 1);
    EXPECT_EQ(trial["weights_xxh3"].get<std::string>().size(), 32u);
  }
  EXPECT_NE(json["trials"][0]["weights_xxh3"], json["trials"][1]["weights_xxh3"]);
}

TEST_F(TrainCommand, ResolvesPathsOfTheConfiguration) {
  const std::filesystem::path here = std::filesystem::current_path();
  const auto away = std::filesystem::relative(folder_.path(), here);
  options_.overrides = {"data_root=" + away.string(), "data.path=text.txt",
                        "offload_path=" + (away / "homes").string()};
  std::filesystem::create_directory(folder_ / "homes");
  ASSERT_EQ(run(), kDone);
  const std::string config = folder_.read("out/config.yaml");
  EXPECT_NE(config.find("data_root: " + (here / away).string() + "\n"), std::string::npos);
  EXPECT_NE(config.find("offload_path: " + (here / away / "homes").string() + "\n"),
            std::string::npos);
}

TEST_F(TrainCommand, KeepsTheBitsAndLogsFailedDevicesAndShares) {
  options_.json = true;
  ASSERT_EQ(run(), kDone);
  const Json whole = Json::parse(out_.str());
  options_.overrides = {
      "devices=[{memory: 720KiB, imitate: {fault: {kind: fail, after_ops: 30}}}, {memory: 720KiB}]",
      "scheduling.sharing=wfs", "train.data_parallel=auto", "train.priority=3",
      "output_dir=" + folder_ / "again"};
  ASSERT_EQ(run(), kDone);
  const Json shared = Json::parse(out_.str());
  for (std::size_t t = 0; t < 4; ++t)
    EXPECT_EQ(shared["trials"][t]["weights_xxh3"], whole["trials"][t]["weights_xxh3"]);
  for (const char* line : {"s  device 0  lost  simulated failure after 30 ops\n",
                           "other trials use the devices (scheduling.sharing: wfs)\n"})
    EXPECT_NE(log_.str().find(line), std::string::npos) << log_.str();
  for (const char* part : {R"("event":"lost")", R"("reason":"wfs")"})
    EXPECT_NE(folder_.read("again/events.jsonl").find(part), std::string::npos) << part;
  EXPECT_NE(folder_.read("again/config.yaml").find("\n  sharing: wfs\n"), std::string::npos);
}

/// 16-bit tokens below 500.
std::string two_byte_tokens() {
  std::string bytes;
  for (int i = 0; i < 2000; ++i) {
    const int token = i * i % 499;
    bytes += {static_cast<char>(token % 256), static_cast<char>(token / 256)};
  }
  return bytes;
}

TEST_F(TrainCommand, TrainsOnTokens) {
  const std::string path = folder_.write("tokens.bin", two_byte_tokens());
  options_.overrides = {"data.format=tokens", "data.path=" + path, "model.vocab_size=500",
                        "devices=[{memory: 1MiB}]"};
  ASSERT_EQ(run(), kDone) << out_.str();
  EXPECT_NE(folder_.read("out/config.yaml").find("dtype: uint16"), std::string::npos);
}

TEST_F(TrainCommand, ReportsAFailedTrialAndTrainsTheOthers) {
  options_.overrides = {"sweep.parameters={train.learning_rate: {values: [1e-3, 9e5]}}",
                        "train.max_grad_norm=0"};
  EXPECT_EQ(run(), kTrialFailed);
  EXPECT_NE(out_.str().find("t1 failed: "), std::string::npos) << out_.str();
  EXPECT_TRUE(wrote("out/trials/learning_rate=1e-3/weights.safetensors"));
  EXPECT_FALSE(wrote("out/trials/learning_rate=9e5/weights.safetensors"));
  EXPECT_NE(folder_.read("out/results.csv").find("not finite"), std::string::npos);
}

TEST_F(TrainCommand, PrintsTheStateOncePerRequest) {
  options_.json = true;
  requests_.state = 1;
  ASSERT_EQ(run(), kDone);
  EXPECT_EQ(Json::parse(out_.str())["state"], "ended");
  const auto first = log_.str().find("State after ");
  ASSERT_NE(first, std::string::npos) << log_.str();
  EXPECT_EQ(log_.str().find("State after ", first + 1), std::string::npos) << log_.str();
}

TEST_F(TrainCommand, ReportsTheResultsOfAnInterruptedRun) {
  options_.json = true;
  options_.overrides = {"train.max_steps=1000000"};
  requests_.stop = true;
  EXPECT_EQ(run(), kInterrupted);
  const Json json = Json::parse(out_.str());
  for (const Json& trial : json["trials"]) {
    EXPECT_EQ(trial["state"], "stopped");
    EXPECT_TRUE(trial["weights_xxh3"].is_null());
  }
}

TEST_F(TrainCommand, ResumesAutomatically) {
  options_.overrides = {"output_dir=" + folder_ / "whole"};
  ASSERT_EQ(run(), kDone);
  options_.overrides = {"output_dir=" + folder_ / "out", "resume=auto"};
  requests_.stop = true;
  EXPECT_EQ(run(), kInterrupted);
  requests_.stop = false;
  EXPECT_EQ(run(), kDone) << log_.str();
  EXPECT_NE(folder_.read("out/events.jsonl").find("restart"), std::string::npos);
  for (const auto& trial : std::filesystem::directory_iterator(folder_ / "whole/trials")) {
    const auto file = "/trials/" + trial.path().filename().string() + "/weights.safetensors";
    EXPECT_EQ(folder_.read("out" + file), folder_.read("whole" + file)) << file;
  }
  // Killed after the last trial, before its tables.
  const std::string results = folder_.read("out/results.csv");
  std::filesystem::remove(folder_ / "out/results.csv");
  EXPECT_EQ(run(), kDone);
  EXPECT_NE(log_.str().find("all trials of this run have ended"), std::string::npos);
  EXPECT_EQ(folder_.read("out/results.csv"), results);
  // A finished run does not count for another configuration.
  const std::string log = folder_.read("out/events.jsonl");
  options_.overrides.emplace_back("train.max_steps=6");
  const auto other = thrown<ConfigErrors>([&] { run(); });
  options_.overrides.pop_back();
  EXPECT_EQ(other.all.size(), 1u);
  EXPECT_NE(std::string(other.what()).find("train.lr_scheduler_extend: is none, but "),
            std::string::npos)
      << other.what();
  EXPECT_EQ(folder_.read("out/events.jsonl"), log);
  // A run killed before its first log line starts again.
  folder_.write("out/events.jsonl", R"({"event": "run", )");
  EXPECT_EQ(run(), kDone) << log_.str();
  EXPECT_EQ(folder_.read("out/events.jsonl").find("restart"), std::string::npos);
}

}  // namespace
}  // namespace spillway::testing
