#include "apps/plan/remedies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "apps/commands/plan_command.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/random/from_environment.h"

namespace spillway::testing {
namespace {

using Json = nlohmann::json;
using Overrides = std::vector<std::string>;

/// A model, and how it trains where it has room.
struct Model {
  const char* model;
  const char* data;
  const char* train;
};

constexpr Model kModels[]{
    {"{hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, vocab_size: 2048, "
     "max_position_embeddings: 32}",
     "{path: text.txt, eval_fraction: 0.5}", "{batch_size: 16, virtual_nodes: 8}"},
    {"{hidden_size: 96, num_hidden_layers: 3, max_position_embeddings: 64}",
     "{path: text.txt, eval_fraction: 0.5}",
     "{batch_size: 32, virtual_nodes: 4, reduction_groups: 4, data_parallel: 2}"},
    {"{hidden_size: 32, num_hidden_layers: 4, max_position_embeddings: 128}",
     "{path: text.txt, eval_fraction: 0.5}", "{batch_size: 64, virtual_nodes: 2}"},
    {"{family: mlp, hidden_size: 256, num_hidden_layers: 3}",
     "{format: digits, path: digits.csv, eval_fraction: 0.5}",
     "{batch_size: 64, virtual_nodes: 4}"},
    {"{family: mlp, hidden_size: 64, num_hidden_layers: 8}",
     "{format: digits, path: digits.csv, eval_fraction: 0.5}",
     "{batch_size: 512, virtual_nodes: 1, optimizer: sgd}"},
    {"{family: resnet, hidden_sizes: [16, 32], depths: [1, 1]}",
     "{format: digits, path: digits.csv, eval_fraction: 0.5}",
     "{batch_size: 32, virtual_nodes: 4}"},
    {"{family: rnn, hidden_size: 96, vocab_size: 2048}", "{path: text.txt, eval_fraction: 0.5}",
     "{batch_size: 32, virtual_nodes: 4}"},
};
constexpr std::size_t kNumModels = std::size(kModels);

class Remedies : public ::testing::Test {
 protected:
  Remedies() {
    std::string text, digits;
    for (int i = 0; i < 9000; ++i) text += "line " + std::to_string(i * i % 97) + "\n";
    for (int i = 0; i < 1200; ++i) {
      for (int pixel = 0; pixel < 64; ++pixel) digits += std::to_string(i * pixel % 17) + ",";
      digits += std::to_string(i % 10) + "\n";
    }
    folder_.write("text.txt", text);
    folder_.write("digits.csv", digits);
    options_.estimate = true;
    options_.json = true;
  }

  void describe(const Model& model, const std::string& more = "") {
    options_.config_file = folder_.write(
        "run.yaml", std::string("devices: [{memory: 1GiB}, {memory: 1GiB}]\nmodel: ") +
                        model.model + "\ndata: " + model.data + "\ntrain: " + model.train +
                        "\ndata_root: " + folder_.path().string() +
                        "\noutput_dir: " + folder_ / "out" + "\n" + more);
  }

  ExitCode run(const Overrides& overrides, Json& json) {
    PlanOptions options = options_;
    options.overrides.insert(options.overrides.end(), overrides.begin(), overrides.end());
    std::ostringstream out;
    const ExitCode code = plan(options, out);
    json = Json::parse(out.str());
    return code;
  }
  Json planned(const Overrides& overrides = {}) {
    Json json;
    run(overrides, json);
    return json;
  }

  TemporaryFolder folder_;
  PlanOptions options_;
};

std::string exactly(const char* key, double bytes) {
  return key + std::to_string(static_cast<Bytes>(bytes));
}

bool offers(const Json& json, const Overrides& overrides) {
  return std::ranges::any_of(json["remedies"], [&](const Json& remedy) {
    return remedy["overrides"].get<Overrides>() == overrides;
  });
}

TEST_F(Remedies, AreNotSoughtForARunThatFits) {
  describe(kModels[0]);
  EXPECT_EQ(planned()["remedies"], Json::array());
}

/// One of the runs that do not fit.
class RemediesOfRun : public Remedies, public ::testing::WithParamInterface<unsigned> {
 protected:
  RemediesOfRun() { describe(kModels[GetParam() % kNumModels]); }

  /// What does not fit is drawn: devices, host memory, or the machine, by how much.
  void shrink(const Json& ample) {
    std::mt19937 random(GetParam());
    const double share = std::uniform_real_distribution<double>(0.5, 0.97)(random);
    const auto of_trial = [&](const char* key) { return ample["trials"][0][key].get<double>(); };
    switch (GetParam() % 5) {
      case 3:
        options_.overrides = {exactly("host_memory=", share * of_trial("host_bytes"))};
        break;
      case 4:
        options_.machine.total =
            static_cast<Bytes>(share * ample["memory"]["needed_bytes"].get<double>());
        options_.machine.available = options_.machine.total;
        break;
      default:
        for (const char* key : {"devices[0].memory=", "devices[1].memory="})
          options_.overrides.push_back(exactly(key, share * of_trial("device_bytes")));
    }
  }
};

/// Each remedy is applied as the plan prints it.
TEST_P(RemediesOfRun, Work) {
  const Json ample = planned();
  ASSERT_EQ(ample["fits"], true);
  shrink(ample);
  Json misfit;
  ASSERT_EQ(run({}, misfit), kDoesNotFit);
  EXPECT_FALSE(misfit["remedies"].empty());
  for (const Json& remedy : misfit["remedies"]) {
    const auto overrides = remedy["overrides"].get<Overrides>();
    Json fits;
    EXPECT_EQ(run(overrides, fits), kDone) << remedy;
    EXPECT_EQ(fits["trials"][0]["device_bytes"], remedy["device_bytes"]) << remedy;
    EXPECT_EQ(fits["trials"][0]["host_bytes"], remedy["host_bytes"]) << remedy;
    EXPECT_GT(remedy["step_s"], 0) << remedy;
    EXPECT_EQ(
        remedy["changes_bits"],
        std::ranges::any_of(overrides, [](const auto& text) { return text.starts_with("train."); }))
        << remedy;
  }
}

/// The first three lack memory of devices, of the host and of the machine. More: SPILLWAY_CAMPAIGN.
INSTANTIATE_TEST_SUITE_P(Configurations, RemediesOfRun,
                         ::testing::Range(2u, 2u + static_cast<unsigned>(campaign_size(3))));

/// Eight groups need four sums at a time, one group needs one.
TEST_F(Remedies, OfferFewerGroupsButNoVirtualNodesOfOneSample) {
  describe({kModels[0].model, kModels[0].data, "{batch_size: 8, virtual_nodes: 8}"});
  const Json one_group = planned({"train.reduction_groups=1"});
  const auto least = one_group["trials"][0]["device_bytes"].get<double>();
  for (const char* key : {"devices[0].memory=", "devices[1].memory="})
    options_.overrides.push_back(exactly(key, least));
  const Json json = planned();
  EXPECT_TRUE(offers(json, {"train.reduction_groups=1"})) << json["remedies"];
  EXPECT_EQ(json.dump().find("train.virtual_nodes="), std::string::npos) << json["remedies"];
  const std::string reason = json["trials"][0]["reason"];
  EXPECT_NE(reason.find("layer head needs most: weights "), std::string::npos) << reason;
  EXPECT_NE(reason.find(", 2048 x 64), gradient sums "), std::string::npos) << reason;
  EXPECT_NE(reason.find("(4 at a time)"), std::string::npos) << reason;
  options_.json = false;
  std::ostringstream out;
  EXPECT_EQ(plan(options_, out), kDoesNotFit);
  for (const char* text : {"It fits with one of these", "add to the command",
                           "\n  train.reduction_groups=1 ", "'devices[0].memory="})
    EXPECT_NE(out.str().find(text), std::string::npos) << text << " in " << out.str();
}

TEST_F(Remedies, AreNotOfferedWhereNothingHelps) {
  describe(kModels[3]);
  options_.overrides = {"devices[0].memory=4KiB", "devices[1].memory=4KiB"};
  options_.machine = {.total = 8_KiB, .available = 8_KiB};
  options_.json = false;
  std::ostringstream out;
  EXPECT_EQ(plan(options_, out), kDoesNotFit);
  EXPECT_EQ(out.str().find("It fits with"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("It does not fit with: "), std::string::npos) << out.str();
}

/// A remedy for the largest trial alone would be none for the run.
TEST_F(Remedies, FitAllTrialsOfASweep) {
  describe(kModels[0], "sweep: {parameters: {model.hidden_size: {values: [32, 64]}}}\n");
  const Json ample = planned();
  for (const char* key : {"devices[0].memory=", "devices[1].memory="}) {
    options_.overrides.push_back(
        exactly(key, 0.8 * ample["trials"][1]["device_bytes"].get<double>()));
  }
  const Json misfit = planned();
  EXPECT_EQ(misfit["trials"][0]["fits"], true);
  ASSERT_FALSE(misfit["remedies"].empty());
  for (const Json& remedy : misfit["remedies"])
    EXPECT_EQ(planned(remedy["overrides"].get<Overrides>())["fits"], true) << remedy;
}

TEST_F(Remedies, LetTrialsWaitForEachOtherOnASmallMachine) {
  describe(kModels[3],
           "scheduling: {sharing: none}\nsweep: {parameters: {seed: {values: [1, 2]}}}\n");
  const Json ample = planned();
  const auto homes = ample["memory"]["offload_bytes"].get<Bytes>(),
             needed = ample["memory"]["needed_bytes"].get<Bytes>();
  options_.machine.total = needed - homes / 4;
  const Json misfit = planned();
  EXPECT_EQ(misfit["fits"], false);
  EXPECT_TRUE(offers(misfit, {"offload_path=" + folder_.path().string()})) << misfit["remedies"];
  EXPECT_TRUE(std::ranges::any_of(misfit["remedies"], [](const Json& remedy) {
    return remedy["overrides"][0].get<std::string>().starts_with("host_memory=");
  })) << misfit["remedies"];
}

}  // namespace
}  // namespace spillway::testing
