#include "apps/plan/largest_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "apps/commands/plan_command.h"
#include "core/base/config_check.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/small_sweep.h"

namespace spillway::testing {
namespace {

using Json = nlohmann::json;

class Largest : public ::testing::Test {
 protected:
  Largest() {
    options_.config_file = write_small_sweep(folder_);
    options_.overrides = {"sweep={}", "devices=[{memory: 8MiB}]", "host_memory=48MiB"};
    options_.json = true;
    options_.estimate = true;
  }

  ExitCode fits(const std::vector<std::string>& overrides) {
    PlanOptions options = options_;
    options.overrides.insert(options.overrides.end(), overrides.begin(), overrides.end());
    std::ostringstream out;
    return plan(options, out);
  }
  Json planned(double most_step_s) {
    PlanOptions options = options_;
    options.largest = true;
    options.most_step_s = most_step_s;
    std::ostringstream out;
    EXPECT_EQ(plan(options, out), kDone);
    return Json::parse(out.str());
  }
  /// Override of the data.
  std::string digits() {
    std::string lines;
    for (int i = 0; i < 400; ++i) {
      for (int pixel = 0; pixel < 64; ++pixel) lines += std::to_string(i * pixel % 17) + ",";
      lines += std::to_string(i % 10) + "\n";
    }
    return "data={format: digits, path: " + folder_.write("digits.csv", lines) + "}";
  }
  static std::vector<std::string> gpt_of(int scale) {
    const std::string n = std::to_string(scale);
    return {"model.num_hidden_layers=" + n, "model.hidden_size=" + std::to_string(64 * scale),
            "model.num_attention_heads=" + n, "model.intermediate_size=0"};
  }

  TemporaryFolder folder_;
  PlanOptions options_;
};

TEST_F(Largest, FitsAndTheNextLargerOneDoesNot) {
  const LargestModel found = find_largest_model(options_, kAnySpeed);
  int scale = 1;
  while (scale < 64 && gpt_of(scale) != found.overrides) ++scale;
  ASSERT_LT(scale, 64) << "heads, blocks and width grow together";
  ASSERT_GT(scale, 1);
  EXPECT_EQ(fits(found.overrides), kDone);
  EXPECT_EQ(fits(gpt_of(scale + 1)), kDoesNotFit);
  EXPECT_LT(found.plans, 20);
}

TEST_F(Largest, IsVerifiedByMeasuredPlans) {
  options_.estimate = false;
  options_.pilot_cache = folder_ / "pilot.json";
  const Json json = planned(kAnySpeed);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["estimated"], false);
  EXPECT_EQ(fits(json["largest_model"].get<std::vector<std::string>>()), kDone);
}

TEST_F(Largest, IsTheSmallestWhereNoneIsAsFastAsAsked) {
  const Json any = planned(kAnySpeed);
  const Json fastest = planned(1e-12);
  EXPECT_LT(fastest["trials"][0]["parameters"], any["trials"][0]["parameters"]);
}

TEST_F(Largest, GrowsInWidthForAnMlp) {
  options_.overrides.insert(options_.overrides.end(), {"model={family: mlp}", digits()});
  const LargestModel found = find_largest_model(options_, kAnySpeed);
  ASSERT_EQ(found.overrides.size(), 1u);
  EXPECT_TRUE(found.overrides[0].starts_with("model.hidden_size=")) << found.overrides[0];
  EXPECT_EQ(fits(found.overrides), kDone);
}

TEST_F(Largest, GrowsInWidthForAnRnn) {
  options_.overrides.push_back("model={family: rnn, max_position_embeddings: 16}");
  const LargestModel found = find_largest_model(options_, kAnySpeed);
  ASSERT_EQ(found.overrides.size(), 2u);
  EXPECT_TRUE(found.overrides[0].starts_with("model.hidden_size=")) << found.overrides[0];
  EXPECT_EQ(fits(found.overrides), kDone);
}

TEST_F(Largest, HasOneSizeForAGraphOfLayers) {
  options_.overrides.insert(
      options_.overrides.end(),
      {"model={family: cnn, num_channels: 1, image_size: 8, num_classes: 10, layers: [{type: "
       "linear, out_features: 10}]}",
       digits()});
  const auto error = thrown<ConfigError>([&] { find_largest_model(options_, kAnySpeed); });
  EXPECT_EQ(error.field, "model.layers");
}

/// What is wrong with the file is no matter of size.
TEST_F(Largest, ReportsTheErrorsOfPlan) {
  options_.overrides.push_back("data.path=missing.txt");
  EXPECT_THROW(find_largest_model(options_, kAnySpeed), ConfigErrors);
}

}  // namespace
}  // namespace spillway::testing
