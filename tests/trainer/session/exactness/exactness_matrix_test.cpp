#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/plan/lower.h"
#include "tests/support/check/outcome.h"
#include "tests/support/models/small_cnn.h"
#include "tests/support/models/small_resnet.h"
#include "tests/support/models/small_rnn.h"
#include "tests/support/models/tiny_gpt.h"
#include "tests/support/random/broken_rules.h"
#include "tests/support/random/from_environment.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"

/// One table: what is trained x who computes which share x whether it fits there x what happens
/// during training. The reference of every cell is the same trial on one device that holds all of
/// it, in one lane. Each cell asserts by counters that it took its path, and controls that break
/// one rule have other bits. A family tries a sixth of its cells, so that each placement is tried
/// by at least one family; with SPILLWAY_CAMPAIGN=6 or more it tries all.
namespace spillway::testing {
namespace {

using Kind = SessionEvent::Kind;

constexpr std::int64_t kSteps = 10, kVirtualNodes = 12, kEvaluations = 2;

/// A family tries every sixth cell, or all in a larger campaign.
std::size_t stride() { return std::max<std::size_t>(1, 6 / campaign_size(1)); }

/// Twelve virtual nodes of two samples, each a group: any number of lanes up to twelve. An epoch
/// ends within the fifth or the ninth step, so every change below happens within one.
TrialConfig in_matrix(TrialConfig trial) {
  trial.train.batch_size = 2 * kVirtualNodes;
  trial.train.virtual_nodes = trial.train.reduction_groups = kVirtualNodes;
  trial.train.max_steps = kSteps;
  trial.train.eval_steps = kSteps / kEvaluations;
  trial.train.eval_batches = 1;
  return trial;
}

struct Family {
  std::string name;
  TrialConfig trial;
  std::size_t number = 0;
};

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

std::vector<Family> families() {
  TrialConfig gpt = in_matrix(tiny_trial());
  gpt.data = std::make_shared<DataSplit>(DataSplit{std::make_shared<RuleSource>(100, 17, 0),
                                                   std::make_shared<RuleSource>(64, 17, 500)});
  TrialConfig bf16 = gpt;
  bf16.train.dtype = bf16.train.gradient_dtype = FloatType::bf16;
  GptConfig in_pieces = tiny_gpt();
  in_pieces.pieces = {.attention = 2, .mlp = 3, .vocabulary = 5};
  TrialConfig divided = gpt;
  divided.model = tiny_trial("divided", in_pieces).model;
  TrialConfig translation = in_matrix(rnn_trial(small_rnn(RnnPreset::nmt, 0.1, /*pieces=*/2)));
  translation.data = std::make_shared<DataSplit>(DataSplit{
      std::make_shared<RuleSource>(100, 21, 0), std::make_shared<RuleSource>(64, 21, 500)});
  std::vector<Family> all{
      {"GptWithDropout", gpt},
      {"GptInPieces", divided},
      {"ResnetWithStatisticsDropoutAugmentation", in_matrix(resnet_trial())},
      {"CnnInPieces", in_matrix(cnn_trial(small_cnn(/*drop=*/0.1, {.channels = 2})))},
      {"CnnInRows", in_matrix(cnn_trial(small_cnn(/*drop=*/0.1, {.height = 2})))},
      {"TranslationInChunksAndPieces", translation},
      {"GptInBf16", bf16}};
  for (std::size_t i = 0; i < all.size(); ++i) all[i].number = i;
  return all;
}

SessionConfig devices_of(int num_devices, Bytes budget) {
  SessionConfig config = session_of(num_devices, budget);
  config.device_timeout_s = 2;
  return config;
}

/// Where a trial is computed: the groups of each lane, one device each.
struct Placement {
  std::vector<int> lane_groups;
  bool spilled;
  int num_devices() const { return static_cast<int>(lane_groups.size()); }
};

std::vector<Placement> placements() {
  std::vector<Placement> all;
  for (const bool spilled : {false, true}) {
    for (const auto& lane_groups : std::vector<std::vector<int>>{{12},
                                                                 {6, 6},
                                                                 {9, 3},
                                                                 {4, 4, 4},
                                                                 {1, 4, 7},
                                                                 {3, 3, 3, 3},
                                                                 {1, 5, 2, 4},
                                                                 {2, 2, 2, 2, 1, 1, 1, 1},
                                                                 {1, 3, 1, 2, 1, 2, 1, 1}}) {
      all.push_back({lane_groups, spilled});
    }
  }
  return all;
}

std::string text(const Placement& placement) {
  std::string lanes;
  for (const int groups : placement.lane_groups) lanes += " " + std::to_string(groups);
  return "lanes of" + lanes + (placement.spilled ? ", spilled" : ", resident");
}

class Matrix : public ::testing::TestWithParam<Family> {
 protected:
  static const TrialConfig& trial() { return GetParam().trial; }

  /// The cells of this family.
  template <typename Cell>
  static std::vector<Cell> tried(const std::vector<Cell>& cells) {
    std::vector<Cell> own;
    for (std::size_t i = GetParam().number % stride(); i < cells.size(); i += stride()) {
      own.push_back(cells[i]);
    }
    return own;
  }
  /// Resident or spilled: one of them, or both if all cells are tried.
  static std::vector<bool> tried_memory() {
    if (stride() == 1) return {false, true};
    return {GetParam().number % 2 == 1};
  }

  /// One device, resident, one lane.
  static Outcome computed_alone(const TrialConfig& config) {
    WatchedSession run(devices_of(1, kAmple));
    const JobId id = run.session.submit(config);
    run.run();
    EXPECT_EQ(run.result.trials[0].num_shards, 1);
    EXPECT_EQ(total(run.result, &DeviceResult::evictions), 0u);
    return outcome_of(run.session, id);
  }
  static const Outcome& oracle(const Family& family = GetParam()) {
    static std::map<std::string, Outcome> known;
    if (!known.contains(family.name)) known[family.name] = computed_alone(family.trial);
    return known[family.name];
  }

  static Bytes least_for(TrialConfig config) {
    config.train.order = OrderChoice::shard_major;
    Session session(devices_of(config.train.data_parallel, kAmple));
    return session.plan(session.submit(config)).smallest_budget_bytes;
  }
  static Bytes least_for(std::vector<int> lane_groups) {
    static std::map<std::pair<std::string, std::vector<int>>, Bytes> known;
    Bytes& least = known[{GetParam().name, lane_groups}];
    if (least == 0) least = least_for(with_lanes(trial(), std::move(lane_groups)));
    return least;
  }
  /// The smallest budget for these lanes, and for those that remain when devices leave.
  static Bytes tightest(const std::vector<int>& lane_groups) {
    Bytes least = least_for(lane_groups);
    for (std::size_t lanes = 1; lanes <= lane_groups.size(); ++lanes) {
      const auto even = split_groups(kVirtualNodes, static_cast<int>(lanes));
      least = std::max(least, least_for(even));
    }
    return least;
  }
  static SessionConfig session_for(const Placement& placement) {
    return devices_of(placement.num_devices(),
                      placement.spilled ? tightest(placement.lane_groups) : kAmple);
  }
};

/// Virtual nodes of training and evaluation, if nothing is computed twice.
std::uint64_t ops_of(int num_shards) {
  return static_cast<std::uint64_t>(kSteps * kVirtualNodes * (2 * num_shards - 1) +
                                    kEvaluations * kVirtualNodes * num_shards);
}

/// Lower bound per step for the device with the smallest share.
std::uint64_t least_ops_a_step(const std::vector<int>& lane_groups, int num_shards) {
  return static_cast<std::uint64_t>(std::ranges::min(lane_groups) * (2 * num_shards - 1));
}

void expect_path(const RunResult& result, const Placement& placement) {
  const TrialResult& trial = result.trials[0];
  EXPECT_EQ(trial.lanes, placement.num_devices());
  EXPECT_EQ(trial.num_shards > 1, placement.spilled);
  EXPECT_EQ(total(result, &DeviceResult::ops), ops_of(trial.num_shards));
  EXPECT_EQ(total(result, &DeviceResult::evictions) > 0, placement.spilled);
  for (const DeviceResult& device : result.devices) {
    EXPECT_GE(device.ops, kSteps * least_ops_a_step(placement.lane_groups, trial.num_shards));
    EXPECT_GT(device.loads, 0u);
  }
  expect_within_budgets(result);
}

TEST_P(Matrix, HasTheBitsOfOneDeviceForEveryPlacement) {
  for (const Placement& placement : tried(placements())) {
    SCOPED_TRACE(text(placement));
    WatchedSession run(session_for(placement));
    const JobId id = run.session.submit(with_lanes(trial(), placement.lane_groups));
    run.run();
    expect_path(run.result, placement);
    EXPECT_EQ(difference(outcome_of(run.session, id), oracle()), "");
  }
}

/// Every other placement after this one: each share of lanes once, spilled or resident.
std::vector<Placement> half_of_placements(std::size_t from) {
  std::vector<Placement> half;
  const std::vector<Placement> all = placements();
  for (std::size_t i = from; i < all.size(); i += 2) half.push_back(all[i]);
  return half;
}

/// Trials of another seed and of the other family take turns with the trial on its devices.
TEST_P(Matrix, KeepsItsBitsAmongOtherJobs) {
  const auto known = families();
  const Family& other = known[0].name == GetParam().name ? known[1] : known[0];
  TrialConfig reseeded = trial();
  reseeded.train.seed = 77;
  reseeded.train.max_steps = kSteps / 2;
  for (const Placement& placement : tried(half_of_placements(0))) {
    SCOPED_TRACE(text(placement));
    SessionConfig config = session_for(placement);
    for (DeviceConfig& device : config.devices) {
      device.memory = std::max(device.memory, least_for(other.trial));
    }
    WatchedSession run(config);
    const JobId id = run.session.submit(with_lanes(trial(), placement.lane_groups));
    const JobId first = run.session.submit(reseeded), second = run.session.submit(other.trial);
    run.run();
    EXPECT_EQ(run.result.trials[id.index()].lanes, placement.num_devices());
    const auto spills = [](const TrialResult& trial) { return trial.num_shards > 1; };
    EXPECT_EQ(std::ranges::any_of(run.result.trials, spills), placement.spilled);
    EXPECT_EQ(run.result.trials[first.index()].steps, kSteps / 2);
    EXPECT_EQ(difference(outcome_of(run.session, id), oracle()), "");
    EXPECT_EQ(difference(outcome_of(run.session, second), oracle(other)), "");
    EXPECT_NE(difference(outcome_of(run.session, first), oracle()), "");
  }
}

/// One device of the placement has a fault; if it is the only one, another is added. Returns true
/// if the open step was repeated.
bool runs_with_a_loss(const Placement& placement, const SessionConfig& config,
                      const TrialConfig& trial, const Outcome& oracle) {
  const DeviceConfig sound{.memory = config.devices[0].memory};
  WatchedSession run(config);
  const JobId id = run.session.submit(with_lanes(trial, placement.lane_groups));
  run.run([&](const SessionEvent& event) {
    const bool was_last = event.kind == Kind::lost && placement.num_devices() == 1;
    if (was_last) run.session.add_device(sound);
  });
  EXPECT_EQ(run.all(Kind::lost).size(), 1u);
  const int left = std::max(1, placement.num_devices() - 1);
  EXPECT_EQ(run.result.trials[0].lanes, left);
  EXPECT_EQ(run.result.trials[0].num_shards > 1, placement.spilled);
  EXPECT_EQ(difference(outcome_of(run.session, id), oracle), "");
  return !run.all(Kind::redone).empty();
}

TEST_P(Matrix, KeepsItsBitsIfDevicesFail) {
  std::mt19937 random(11);
  std::size_t redone = 0;
  const std::vector<Placement> cells = tried(half_of_placements(1));
  for (const Placement& placement : cells) {
    // In the first half, so that the remaining devices get a new plan.
    const auto smallest_share = static_cast<std::uint64_t>(kSteps / 2) *
                                least_ops_a_step(placement.lane_groups, placement.spilled ? 2 : 1);
    const auto after_ops = std::uniform_int_distribution<std::uint64_t>(0, smallest_share)(random);
    const auto device =
        std::uniform_int_distribution<std::size_t>(0, placement.lane_groups.size() - 1)(random);
    SCOPED_TRACE(text(placement) + ", device " + std::to_string(device) + " fails after " +
                 std::to_string(after_ops));
    SessionConfig config = session_for(placement);
    config.devices[device].imitate.fault = {DeviceFault::Kind::fail, after_ops};
    if (runs_with_a_loss(placement, config, trial(), oracle())) ++redone;
  }
  EXPECT_GE(redone, (cells.size() + 1) / 2);
}

TEST_P(Matrix, KeepsItsBitsIfADeviceHangs) {
  for (const bool spilled : tried_memory()) {
    const Placement placement{{3, 3, 3, 3}, spilled};
    SessionConfig config = session_for(placement);
    config.devices[2].imitate.fault = {DeviceFault::Kind::hang, 14};
    EXPECT_TRUE(runs_with_a_loss(placement, config, trial(), oracle()));
  }
}

/// Devices 4 -> 2 -> 1 -> 3, each change within an epoch.
TEST_P(Matrix, KeepsItsBitsOnAPathOverDevices) {
  for (const bool spilled : tried_memory()) {
    const SessionConfig config = session_for({{1, 5, 2, 4}, spilled});
    TrialConfig four = with_lanes(trial(), {1, 5, 2, 4});
    WatchedSession run(config);
    const JobId id = run.submit_in_lockstep(four);
    run.run([&](const SessionEvent& event) {
      if (event.kind != Kind::step) return;
      if (event.step == 2) run.session.remove_device(3), run.session.remove_device(1);
      if (event.step == 5) run.session.remove_device(0);
      if (event.step == 7) {
        EXPECT_EQ(run.session.add_device(config.devices[0]), 4);
        EXPECT_EQ(run.session.add_device(config.devices[0]), 5);
        run.await(Kind::joined, 2);
      }
    });
    EXPECT_EQ(run.lanes_of(id), (std::vector{2, 1, 3}));
    EXPECT_EQ(run.all(Kind::left).size(), 3u);
    EXPECT_EQ(run.all(Kind::redone).size(), 0u);
    EXPECT_EQ(run.result.trials[0].num_shards > 1, spilled);
    for (const DeviceResult& device : run.result.devices) EXPECT_GT(device.ops, 0u);
    expect_within_budgets(run.result);
    EXPECT_EQ(difference(outcome_of(run.session, id), oracle()), "");
  }
}

/// The same numbers of lanes on devices that stay, then one lane per device.
TEST_P(Matrix, KeepsItsBitsOverResizes) {
  const std::map<std::int64_t, int> path{{2, 2}, {4, 1}, {6, 3}, {8, 8}};
  for (const bool spilled : tried_memory()) {
    TrialConfig four = with_lanes(trial(), {1, 5, 2, 4});
    four.train.max_data_parallel = 8;
    WatchedSession run(session_for({{2, 2, 2, 2, 1, 1, 1, 1}, spilled}));
    const JobId id = run.submit_in_lockstep(four);
    run.run([&](const SessionEvent& event) {
      const auto next = path.find(event.step);
      if (event.kind == Kind::step && next != path.end()) run.session.resize(id, next->second);
    });
    EXPECT_EQ(run.lanes_of(id), (std::vector{2, 1, 3, 8}));
    EXPECT_EQ(run.result.trials[0].num_shards > 1, spilled);
    EXPECT_TRUE(spilled || total(run.result, &DeviceResult::ops) == ops_of(1));
    for (const DeviceResult& device : run.result.devices) EXPECT_GT(device.ops, 0u);
    EXPECT_EQ(difference(outcome_of(run.session, id), oracle()), "");
  }
}

// Negative controls: each breaks one rule, and the same comparison detects it.

class MatrixControl : public Matrix {
 protected:
  static Outcome computed_by(int lanes, TrialConfig config) {
    config.train.data_parallel = lanes;
    WatchedSession run(devices_of(lanes, kAmple));
    const JobId id = run.session.submit(config);
    run.run();
    EXPECT_EQ(run.result.trials[0].lanes, lanes);
    for (const DeviceResult& device : run.result.devices) EXPECT_GT(device.ops, 0u);
    return outcome_of(run.session, id);
  }
};

TEST_P(MatrixControl, DiffersWithRandomNumbersPerDevice) {
  const Outcome alone = computed_by(1, seeded_by_device(trial()));
  EXPECT_EQ(difference(computed_by(1, seeded_by_device(trial())), alone), "");
  for (const int lanes : {2, 4}) {
    EXPECT_NE(difference(computed_by(lanes, seeded_by_device(trial())), alone), "") << lanes;
  }
}

TEST_P(MatrixControl, DiffersWithLeftFoldsPerDevice) {
  std::set<std::string> hashes{oracle().trial.weights_xxh3};
  for (const int lanes : {1, 2, 4}) {
    const Outcome by_lane = computed_by(lanes, summed_by_lane(trial(), lanes));
    EXPECT_NE(difference(by_lane, oracle()), "") << lanes;
    hashes.insert(by_lane.trial.weights_xxh3);
    EXPECT_NEAR(by_lane.trial.losses.back(), oracle().trial.losses.back(), 1e-2)
        << "another order of the same sums is no other training";
  }
  // fp32 sums of bf16 gradients are often exact, so two orders may agree.
  const std::size_t least = trial().train.dtype == FloatType::bf16 ? 3 : 4;
  EXPECT_GE(hashes.size(), least) << "its bits follow the number of devices";
}

/// One step: threads that wait for each other use up the cores.
TEST_P(MatrixControl, DiffersWithMoreThreadsPerOp) {
  TrialConfig brief = trial();
  if (brief.train.dtype == FloatType::bf16) {
    GTEST_SKIP() << "the sums of one step may round to the same bf16";
  }
  if (GetParam().name.starts_with("Translation")) {
    GTEST_SKIP() << "no operation of this network divides its sums between two threads";
  }
  brief.train.max_steps = 1;
  const Outcome one_thread = computed_by(1, brief);
  EXPECT_EQ(difference(computed_by(1, brief), one_thread), "") << "one thread again";
  EXPECT_NE(difference(computed_by(1, with_two_threads_per_op(brief)), one_thread), "");
}

INSTANTIATE_TEST_SUITE_P(, Matrix, ::testing::ValuesIn(families()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(, MatrixControl, ::testing::ValuesIn(families()),
                         [](const auto& test) { return test.param.name; });

/// The weights do not change, so only the observations matter.
TEST(StatisticsControl, DiffersWithStatisticsPerDevice) {
  const TrialConfig trial = still_trial(2);
  const auto kept_by_device = [&](std::vector<int> lane_groups) {
    const auto devices = static_cast<int>(lane_groups.size());
    return train_to_file(session_of(devices, kAmple),
                         with_lanes(statistics_by_device(trial, devices), lane_groups));
  };
  const Trained whole = train_to_file(session_of(1, kAmple), trial);
  const Trained one = kept_by_device({4}), two = kept_by_device({2, 2});
  EXPECT_EQ(one.run.trials[0].weights_xxh3, whole.run.trials[0].weights_xxh3);
  EXPECT_EQ(two.run.trials[0].losses, whole.run.trials[0].losses);
  EXPECT_NE(two.run.trials[0].eval_losses, whole.run.trials[0].eval_losses);
  for (const auto& [name, value] : whole.values) {
    EXPECT_EQ(value.equal(two.values.at(name)), name.find("running_") == std::string::npos) << name;
  }
}

}  // namespace
}  // namespace spillway::testing
