#include "trainer/trial/trial_contract.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spillway::testing {
namespace {

Contract contract(const std::string& max_steps, const std::string& extended_from = "",
                  const std::string& mode = "") {
  Contract made{{"train.seed", "1"}, {"train.max_steps", max_steps}};
  if (!extended_from.empty()) made["train.extended_from"] = extended_from;
  if (!mode.empty()) made["train.lr_scheduler_extend"] = mode;
  return made;
}

std::vector<std::string> fields(const Contract& then, const Contract& now) {
  std::vector<std::string> names;
  for (const ContractDifference& change : changes_since(then, now)) names.push_back(change.field);
  return names;
}

using Fields = std::vector<std::string>;

TEST(TrialContract, AllowsAnExtension) {
  EXPECT_EQ(fields(contract("10"), contract("20", "10")), Fields{});
  EXPECT_EQ(fields(contract("10"), contract("20", "10", "stretch")), Fields{});
  EXPECT_EQ(fields(contract("10"), contract("40", "10,20")), Fields{});
  EXPECT_EQ(fields(contract("20", "10", "restart"), contract("40", "10,20", "restart")), Fields{});
}

TEST(TrialContract, RefusesOtherDifferences) {
  const Fields steps{"train.max_steps"}, both{"train.extended_from", "train.max_steps"};
  EXPECT_EQ(fields(contract("10"), contract("20")), steps);
  EXPECT_EQ(fields(contract("20", "10"), contract("10")), both);
  EXPECT_EQ(fields(contract("1"), contract("20", "10")), both);  // 1 is no length that 10 follows
  EXPECT_EQ(fields(contract("20", "10"), contract("40", "20")), both);
  EXPECT_EQ(fields(contract("20", "10", "restart"), contract("40", "10,20", "stretch")),
            Fields{"train.lr_scheduler_extend"});
  Contract other = contract("20", "10");
  other["train.seed"] = "2";
  EXPECT_EQ(fields(contract("10"), other), Fields{"train.seed"});
}

}  // namespace
}  // namespace spillway::testing
