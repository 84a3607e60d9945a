#include "apps/report/format_state.h"

#include <gtest/gtest.h>

namespace spillway::testing {
namespace {

TEST(StateText, ListsDevicesTrialsAndRunningWork) {
  using Track = TraceSpan::Track;
  const DeviceId device(1);
  const SessionState state{
      .time_s = 12.5,
      .devices = {{"cpu", "gone", 2_MiB, 0}, {"cpu", "present", 4_MiB, 3_MiB}},
      .trials = {{"a", TrialState::done, 9, 9, {}, ""},
                 {"b", TrialState::running, 3, 9, {1, -1}, ""},
                 {"c", TrialState::waiting, 0, 9, {}, "a device"}},
      .under_way = {{Track::compute, device, JobId(1), "backward 0-2 vn 1", 3, 0, 12.25, 0},
                    {Track::to_device, device, JobId(2), "weights", 0, 1_KiB, 12, 0},
                    {Track::host_pool, DeviceId(), JobId(2), "load", 0, 0, 12.5, 0}}};
  EXPECT_EQ(format_state(state),
            "State after 12.5 s:\n"
            "  device  kind    state    in use    budget\n"
            "  0        cpu     gone       0 B  2.00 MiB\n"
            "  1        cpu  present  3.00 MiB  4.00 MiB\n"
            "  trial    state  step  devices  waits for\n"
            "  b      running   3/9     1, -          -\n"
            "  c      waiting   0/9        -   a device\n"
            "  1 of 3 trials have ended\n"
            "  in flight                 where  trial  after step     bytes      for\n"
            "  backward 0-2 vn 1      device 1      b           3         -  0.250 s\n"
            "  weights to the device  device 1      c           0  1.00 KiB  0.500 s\n"
            "  load                       host      c           0         -  0.000 s\n");
}

TEST(StateText, ReportsThatNothingIsRunning) {
  const SessionState state{.trials = {{"a", TrialState::done, 9, 9, {}, ""}}};
  EXPECT_TRUE(
      format_state(state).ends_with("  1 of 1 trials have ended\n  nothing is in flight\n"));
}

}  // namespace
}  // namespace spillway::testing
