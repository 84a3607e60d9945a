#include <gtest/gtest.h>

#include "spillway/error.h"
#include "tests/support/run/training_run.h"

namespace spillway::testing {
namespace {

TEST(Link, SlowsCopiesAsSimulatedAndChangesNoBit) {
  SessionConfig config = session_of(1, smallest_budget(tiny_trial()));
  const RunResult direct = train(config, tiny_trial());
  config.devices[0].imitate.link_bytes_per_s = 100_MiB;
  Session session(config);
  session.submit(tiny_trial());
  const RunResult simulated = session.simulate();
  session.run();
  const RunResult linked = session.result();
  for (const RunResult& result : {simulated, linked}) {
    const auto bytes = static_cast<double>(result.h2d_bytes + result.d2h_bytes);
    EXPECT_GT(result.copy_s, 0.9 * bytes / static_cast<double>(100_MiB));
    EXPECT_GT(result.copy_s, direct.copy_s);
  }
  EXPECT_LE(simulated.copy_s, 2 * linked.copy_s);
  expect_same_bits(linked.trials[0], direct.trials[0]);
}

TEST(Link, RefusesATooSlowLink) {
  SessionConfig config = session_of(2, kAmple);
  config.devices[1].imitate.link_bytes_per_s = 1;
  try {
    Session session(config);
    FAIL() << "a copy would take for ever";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.field, "devices[1].imitate.link");
  }
}

}  // namespace
}  // namespace spillway::testing
