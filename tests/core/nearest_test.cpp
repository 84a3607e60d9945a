#include "core/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spillway {
namespace {

TEST(EditDistance, CountsEachKindOfEdit) {
  EXPECT_EQ(edit_distance("lanes", "lanes"), 0u);
  EXPECT_EQ(edit_distance("lane", "lanes"), 1u) << "insert";
  EXPECT_EQ(edit_distance("lanes", "lans"), 1u) << "delete";
  EXPECT_EQ(edit_distance("lanes", "lines"), 1u) << "replace";
  EXPECT_EQ(edit_distance("lanes", "lanse"), 1u) << "swap";
  EXPECT_EQ(edit_distance("ca", "abc"), 3u) << "no edits inside a swap";
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "seed"), 4u);
  EXPECT_EQ(edit_distance("seed", ""), 4u);
  EXPECT_EQ(edit_distance("", ""), 0u);
}

TEST(EditDistance, CaseAndDashesDoNotCount) {
  EXPECT_EQ(edit_distance("Batch-Size", "batch_size"), 0u);
  EXPECT_EQ(edit_distance("BathcSize", "batch_size"), 2u);
}

TEST(Nearest, FindsTheKeyThatWasMeant) {
  const std::vector<std::string> known{"name",
                                       "seed",
                                       "model",
                                       "model.hidden_size",
                                       "model.dropout",
                                       "data.path",
                                       "train.batch_size",
                                       "train.learning_rate",
                                       "train.warmup_ratio",
                                       "devices[0].memory",
                                       "devices[1].memory"};
  EXPECT_EQ(nearest("train.learnig_rate", known), "train.learning_rate");
  EXPECT_EQ(nearest("train.learningRate", known), "train.learning_rate");
  EXPECT_EQ(nearest("learning_rate", known), "train.learning_rate");
  EXPECT_EQ(nearest("model.learning_rate", known), "train.learning_rate");
  EXPECT_EQ(nearest("train.dropout", known), "model.dropout");
  EXPECT_EQ(nearest("sede", known), "seed");
  EXPECT_EQ(nearest("devices[1].memroy", known), "devices[1].memory");
  EXPECT_EQ(nearest("batchsize", known), "train.batch_size");
}

TEST(Nearest, SaysNothingWhereAllAreFarOff) {
  const std::vector<std::string> known{"name", "seed", "train.batch_size"};
  EXPECT_EQ(nearest("train.momentum", known), "");
  EXPECT_EQ(nearest("x", known), "");
  EXPECT_EQ(nearest("name", {}), "");
}

TEST(Nearest, TheFirstOfEqualsWins) {
  EXPECT_EQ(nearest("lana", std::vector<std::string>{"lanb", "lanc"}), "lanb");
  EXPECT_EQ(nearest("lana", std::vector<std::string>{"lanc", "lanb"}), "lanc");
  EXPECT_EQ(nearest("b.key", std::vector<std::string>{"a.key", "b.key2"}), "a.key");
  EXPECT_EQ(nearest("b.key", std::vector<std::string>{"a.key", "b.key"}), "b.key")
      << "the right section wins over the wrong one";
}

}  // namespace
}  // namespace spillway
