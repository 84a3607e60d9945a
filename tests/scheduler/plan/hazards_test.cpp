#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "scheduler/plan/lower.h"
#include "spillway/ids.h"
#include "tests/support/random/random_workload.h"

/// Updates run before the units that read their weights, loads before the units that read the
/// batch, backward units before the reduction of their layers, everything before the commit.
namespace spillway {
namespace {

/// The order that the engine enforces for a unit or host op: earlier units of its track, host ops.
class Order {
 public:
  explicit Order(const Program& program) : program_(program) {}
  bool unit_after_host(int unit, int host_op) const {
    for (int u : program_.track_units[at(program_.units[at(unit)].track)]) {
      if (u > unit) break;
      for (int before : program_.units[at(u)].host_deps) {
        if (before == host_op || host_after_host(before, host_op)) return true;
      }
    }
    return false;
  }
  bool host_after_unit(int host_op, int unit) const {
    const HostOpSpec& op = program_.host_ops[at(host_op)];
    const int track = program_.units[at(unit)].track;
    return std::ranges::any_of(
               op.unit_deps,
               [&](int u) { return u >= unit && program_.units[at(u)].track == track; }) ||
           std::ranges::any_of(op.host_deps, [&](int h) { return host_after_unit(h, unit); });
  }
  bool host_after_host(int host_op, int before) const {
    const HostOpSpec& op = program_.host_ops[at(host_op)];
    return std::ranges::any_of(op.host_deps,
                               [&](int h) { return h == before || host_after_host(h, before); }) ||
           std::ranges::any_of(op.unit_deps, [&](int u) { return unit_after_host(u, before); });
  }

 private:
  const Program& program_;
};

/// True if host op `h` writes what unit `u` reads: a weights block or part of a batch.
bool feeds(const JobPlan& job, const Program& program, int h, int u) {
  const HostOpSpec& op = program.host_ops[at(h)];
  const UnitSpec& unit = program.units[at(u)];
  if (op.kind == HostOpKind::update) return std::ranges::count(unit.weights, op.index) > 0;
  if (op.kind != HostOpKind::load) return false;
  const auto& inputs = program.ops[at(unit.first_op)].inputs;
  const auto& batch = op.index == 1 ? job.layout.eval_batch : job.layout.batch;
  return std::ranges::find_first_of(inputs, batch) != inputs.end();
}

/// True if host op `h` adds up sums of unit `u`.
bool reduces(const Program& program, int h, int u) {
  const HostOpSpec& op = program.host_ops[at(h)];
  const UnitSpec& unit = program.units[at(u)];
  return op.kind == HostOpKind::reduce && unit.kind == OpKind::backward &&
         unit.layers.begin <= op.index && op.index < unit.layers.end;
}

/// The last host op (a commit, or the one that finishes the job) follows everything. If the job
/// rests, only the next program follows.
void expect_ordered(const JobPlan& job, const Program& program) {
  const Order order(program);
  const auto last = static_cast<int>(program.host_ops.size()) - 1;
  const bool has_end = program.commits || program.finishes;
  for (int h = 0; h <= last; ++h) {
    for (int before : program.host_ops[at(h)].host_deps) EXPECT_LT(before, h);
    if (has_end && h < last) {
      EXPECT_TRUE(order.host_after_host(last, h)) << "host op " << h;
    }
  }
  for (int u = 0; u < static_cast<int>(program.units.size()); ++u) {
    if (has_end) {
      EXPECT_TRUE(order.host_after_unit(last, u)) << "unit " << u;
    }
    for (int h = 0; h <= last; ++h) {
      EXPECT_TRUE(!feeds(job, program, h, u) || order.unit_after_host(u, h)) << h << " to " << u;
      EXPECT_TRUE(!reduces(program, h, u) || order.host_after_unit(h, u)) << u << " to " << h;
    }
  }
}

TEST(Hazards, AreOrderedInEveryProgram) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    for (const auto& job : testing::make_workload(seed).jobs) {
      for (const auto& program : job->programs) {
        if (program) expect_ordered(*job, *program);
      }
    }
    if (::testing::Test::HasFailure()) break;
  }
}

/// Negative control: without the dependencies.
TEST(Hazards, AreNotOrderedWithoutDependencies) {
  const auto workload = testing::make_workload(1);
  const JobPlan& job = *workload.jobs[0];
  Program program = *job.programs[job.step_kind(0).index()];
  ASSERT_FALSE(program.units.empty());
  const int last = static_cast<int>(program.host_ops.size()) - 1;
  EXPECT_TRUE(Order(program).host_after_unit(last, 0));
  EXPECT_TRUE(Order(program).unit_after_host(0, 0));
  for (HostOpSpec& op : program.host_ops) op.unit_deps.clear();
  for (UnitSpec& unit : program.units) unit.host_deps.clear();
  EXPECT_FALSE(Order(program).host_after_unit(last, 0));
  EXPECT_FALSE(Order(program).unit_after_host(0, 0));
}

}  // namespace
}  // namespace spillway
