#include "trainer/config/parameter_groups.h"

#include <gtest/gtest.h>

#include <limits>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"

namespace spillway::testing {
namespace {

const std::vector<ParameterGroup> kGroups{
    {.pattern = "*.bias", .learning_rate_scale = 2, .weight_decay = 0.0},
    {.pattern = "head.*", .learning_rate_scale = 0.5}};

ModelSpec model() {
  ModelSpec spec;
  for (const char* name : {"body.weight", "body.bias", "head.weight", "head.bias"}) {
    spec.params.push_back({.name = name});
  }
  spec.params.push_back({.name = "table.values", .trainable = false});
  return spec;
}

TEST(ParameterGroups, GiveAParameterTheFirstThatMatches) {
  EXPECT_EQ(group_of(kGroups, "head.bias"), &kGroups[0]);
  EXPECT_EQ(group_of(kGroups, "head.weight"), &kGroups[1]);
  EXPECT_EQ(group_of(kGroups, "body.weight"), nullptr);
  EXPECT_EQ(group_of(kGroups, "head"), nullptr);
}

TEST(ParameterGroups, NameAPatternThatMatchesNothing) {
  EXPECT_NO_THROW(require_matches(kGroups, model()));
  for (const char* pattern : {"tail.*", "table.*", "weight", ""}) {
    auto groups = kGroups;
    groups.push_back({.pattern = pattern});
    const auto error = thrown<ConfigError>([&] { require_matches(groups, model()); });
    EXPECT_EQ(error.field, "train.parameter_groups[2].pattern");
    EXPECT_EQ(error.problem, "'" + std::string(pattern) +
                                 "' matches no parameter that trains; names are such as "
                                 "body.weight");
  }
}

TEST(ParameterGroups, RefuseValuesOutOfRange) {
  EXPECT_NO_THROW(require_valid(kGroups));
  const auto field_of = [](const ParameterGroup& group) {
    return thrown<ConfigError>([&] { require_valid({kGroups[0], group}); }).field;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(field_of({.pattern = "*", .learning_rate_scale = -1}),
            "train.parameter_groups[1].learning_rate_scale");
  EXPECT_EQ(field_of({.pattern = "*", .learning_rate_scale = kNan}),
            "train.parameter_groups[1].learning_rate_scale");
  EXPECT_EQ(field_of({.pattern = "*", .weight_decay = -0.1}),
            "train.parameter_groups[1].weight_decay");
}

TEST(ParameterGroups, ArePartOfTheContractIfThereAreAny) {
  Contract contract;
  set_groups(contract, {});
  EXPECT_TRUE(contract.empty());
  set_groups(contract, kGroups);
  EXPECT_EQ(contract.at("train.parameter_groups"),
            R"([{"learning_rate_scale":2.0,"pattern":"*.bias","weight_decay":0.0},)"
            R"({"learning_rate_scale":0.5,"pattern":"head.*"}])");
}

}  // namespace
}  // namespace spillway::testing
