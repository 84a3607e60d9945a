#include "spillway/contract.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace spillway {
namespace {

const Contract kContract{{"data.hash", "abc"}, {"lanes", "2"}, {"seed", "7"}};

TEST(Contract, EqualsItself) {
  EXPECT_TRUE(differences(kContract, kContract).empty());
  EXPECT_TRUE(differences({}, {}).empty());
}

TEST(Contract, NamesEveryChangedFieldWithBothValues) {
  const Contract now{{"lanes", "2"}, {"seed", "8"}, {"steps", ""}};
  const auto found = differences(kContract, now);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], (ContractDifference{"data.hash", "abc", std::nullopt}));
  EXPECT_EQ(found[1], (ContractDifference{"seed", "7", "8"}));
  EXPECT_EQ(found[2], (ContractDifference{"steps", std::nullopt, ""}));
  EXPECT_EQ(to_string(found[0]), "data.hash: was abc, is not set");
  EXPECT_EQ(to_string(found[1]), "seed: was 7, is 8");
  EXPECT_EQ(to_string(found[2]), "steps: was not set, is ");
}

/// Sets "NAME=value" in the environment during its lifetime.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Contract, ComparesFingerprintsThatBothHave) {
  const Contract old{{"lanes", "2"}, {"numerics", "1"}};
  const Contract other{{"lanes", "2"}, {"numerics", "1"}, {"numerics.products", "abc"}};
  const Contract now{{"lanes", "2"}, {"numerics", "1"}, {"numerics.products", "def"}};
  EXPECT_TRUE(differences(old, now).empty()) << "written before there were fingerprints";
  EXPECT_TRUE(differences(now, old).empty());
  const auto found = differences(other, now);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(to_string(found[0]), "numerics.products: was abc, is def");
  EXPECT_EQ(differences(old, {{"lanes", "2"}, {"numerics", "2"}}).size(), 1u) << "no fingerprint";
}

TEST(Contract, ExplainsOtherKernels) {
  const std::vector<ContractDifference> kernels{{"numerics.products", "abc", "def"}};
  EXPECT_NE(explain(kernels).find("no variable known to do so is set here"), std::string::npos);
  const Variable first("MKL_CBWR", "COMPATIBLE"), second("ONEDNN_MAX_CPU_ISA", "AVX2");
  const std::string said = explain(kernels);
  EXPECT_NE(said.find("\n  numerics.products: was abc, is def\n"), std::string::npos) << said;
  EXPECT_NE(said.find("(set here: MKL_CBWR=COMPATIBLE, ONEDNN_MAX_CPU_ISA=AVX2)"),
            std::string::npos)
      << said;
  const ContractDifference device{"device", "one", "other"};
  for (const auto& differences : {std::vector{device}, std::vector{device, kernels.front()}}) {
    EXPECT_NE(explain(differences).find("only portable numerics continue on other processors"),
              std::string::npos);
  }
  EXPECT_EQ(explain({{"seed", "7", "8"}}), "\n  seed: was 7, is 8\nuse the original values");
}

}  // namespace
}  // namespace spillway
