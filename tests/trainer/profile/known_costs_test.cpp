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
  const std::string text = to_text(some_costs(), "me");
  EXPECT_EQ(to_text(parse_costs(text, "me"), "me"), text);
  EXPECT_EQ(parse_costs(text, "me").layers.at("layer").cost.forward_peak, 64u);
  EXPECT_TRUE(parse_costs(text, "another").layers.empty());
}

/// Their hash is right: another program wrote them.
TEST(KnownCosts, RefuseImpossibleValues) {
  KnownCosts negative = some_costs(), endless = some_costs(), still = some_costs();
  negative.layers["layer"].cost.forward_s = -1;
  endless.layers["layer"].cost.merge_s = std::numeric_limits<double>::infinity();
  still.copies["cuda"].cost = 0;
  for (const KnownCosts& costs : {negative, endless, still}) {
    EXPECT_THROW(parse_costs(to_text(costs, "me"), "me"), std::exception);
  }
}

}  // namespace
}  // namespace spillway
