#include "trainer/profile/known_costs.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "spillway/error.h"

namespace spillway {
namespace {

KnownCosts some_costs() {
  const MeasuredAt at{.unix_s = 7, .load = 0.5};
  KnownCosts costs;
  costs.layers["layer"] = {{.forward_s = 0.25, .backward_s = 0.5, .forward_peak = 64}, at};
  costs.copies["cuda"] = {1e9, at};
  costs.contentions["3 threads: layer"] = {1.5, at};
  costs.op_starts["slow: layer"] = {0.125, at};
  return costs;
}

TEST(KnownCosts, AreReadAsTheyWereWritten) {
  const std::string text = to_text({{"me", some_costs()}, {"another", {}}});
  const CostsOfBuilds read = parse_costs(text);
  EXPECT_EQ(to_text(read), text);
  EXPECT_EQ(read.at("me").layers.at("layer").cost.forward_peak, 64u);
  EXPECT_TRUE(read.at("another").layers.empty());
}

/// Their hash is right: another program wrote them.
TEST(KnownCosts, RefuseImpossibleValues) {
  KnownCosts negative = some_costs(), endless = some_costs(), still = some_costs();
  negative.layers["layer"].cost.forward_s = -1;
  endless.layers["layer"].cost.merge_s = std::numeric_limits<double>::infinity();
  still.copies["cuda"].cost = 0;
  for (const KnownCosts& costs : {negative, endless, still}) {
    EXPECT_THROW(parse_costs(to_text({{"me", costs}})), std::exception);
  }
}

TEST(CostsOfBuilds, LoseTheOldestButNotTheirOwn) {
  CostsOfBuilds builds;
  for (const int when : {3, 1, 4, 2}) {
    builds["at " + std::to_string(when)].copies["cuda"] = {1e9, {.unix_s = when}};
  }
  drop_oldest(builds, 3, "at 1");
  EXPECT_EQ(builds.size(), 3u);
  EXPECT_FALSE(builds.contains("at 2"));
  drop_oldest(builds, 1, "at 1");
  EXPECT_TRUE(builds.contains("at 1")) << "its own";
}

}  // namespace
}  // namespace spillway
