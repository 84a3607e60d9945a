#include "trainer/contract.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

const Contract kContract{{"data.hash", "abc"}, {"lanes", "2"}, {"seed", "7"}};

TEST(Contract, EqualOnesDoNotDiffer) {
  EXPECT_TRUE(differences(kContract, kContract).empty());
  EXPECT_TRUE(differences({}, {}).empty());
}

TEST(Contract, EveryFieldThatDiffersIsNamedWithBothValues) {
  const Contract now{{"lanes", "2"}, {"seed", "8"}, {"steps", ""}};
  const auto found = differences(kContract, now);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], (ContractDifference{"data.hash", "abc", std::nullopt}));
  EXPECT_EQ(found[1], (ContractDifference{"seed", "7", "8"}));
  EXPECT_EQ(found[2], (ContractDifference{"steps", std::nullopt, ""}));
  EXPECT_EQ(to_string(found[0]), "data.hash: was abc, is not there");
  EXPECT_EQ(to_string(found[1]), "seed: was 7, is 8");
  EXPECT_EQ(to_string(found[2]), "steps: was not there, is ");
}

}  // namespace
}  // namespace spillway
