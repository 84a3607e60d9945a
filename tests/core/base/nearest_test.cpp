#include "core/base/nearest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
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

TEST(EditDistance, IgnoresCaseAndDashes) {
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

TEST(Nearest, FindsNothingIfAllAreFar) {
  const std::vector<std::string> known{"name", "seed", "train.batch_size"};
  EXPECT_EQ(nearest("train.momentum", known), "");
  EXPECT_EQ(nearest("x", known), "");
  EXPECT_EQ(nearest("name", {}), "");
}

TEST(Nearest, PrefersTheFirstOfEquals) {
  EXPECT_EQ(nearest("lana", std::vector<std::string>{"lanb", "lanc"}), "lanb");
  EXPECT_EQ(nearest("lana", std::vector<std::string>{"lanc", "lanb"}), "lanc");
  EXPECT_EQ(nearest("b.key", std::vector<std::string>{"a.key", "b.key2"}), "a.key");
  EXPECT_EQ(nearest("b.key", std::vector<std::string>{"a.key", "b.key"}), "b.key")
      << "the right section wins over the wrong one";
}

/// Reference implementation without shortcuts.
std::string nearest_of_all(const std::string& key, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(key.size() / 2, 1) + 1;
  for (const auto& candidate : known) {
    if (const auto distance = edit_distance(key, candidate); distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

TEST(Nearest, AgreesWithAnExhaustiveSearch) {
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text(random() % 8, ' ');
    for (char& c : text) c = "ab_-C"[random() % 5];
    return text;
  };
  int num_found = 0;
  for (int run = 0; run < 2000; ++run) {
    const std::vector<std::string> known{word(), word(), word()};
    const std::string key = word(), found = nearest(key, known);
    EXPECT_EQ(found, nearest_of_all(key, known)) << key;
    num_found += found.empty() ? 0 : 1;
  }
  EXPECT_GT(num_found, 500);
  EXPECT_LT(num_found, 1900);
}

}  // namespace
}  // namespace spillway
