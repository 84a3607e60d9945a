#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "spillway/contract.h"
#include "spillway/session_config.h"
#include "spillway/train_config.h"
#include "tests/support/random/random_contract.h"
#include "tests/support/random/random_strategy.h"

namespace spillway::testing {

/// A change of the first job, or of the devices, after that job has committed `step`.
struct RandomChange {
  enum class Kind : std::uint8_t { resize, add, remove } kind = Kind::resize;
  std::int64_t step = 0;
  int number = 0;   ///< of lanes, or of the device
  int percent = 0;  ///< of an added device's budget
};

/// A run: jobs by their contracts, and everything that must not change their bits.
struct RandomConfiguration {
  std::uint64_t seed = 0;
  std::vector<Contract> jobs;        ///< with lanes and order
  SessionConfig session;             ///< devices without budgets
  std::vector<int> budget_percents;  ///< by device: 0 is the smallest budget, 100 holds all of it
  std::vector<RandomChange> changes;
  bool homes_in_files = false, homes_take_turns = false;
};

inline std::string to_text(const RandomConfiguration& c) {
  std::ostringstream text;
  text << "seed " << c.seed << ": " << c.session.devices.size() << " devices, "
       << to_string(c.session.policy) << (c.session.double_buffer ? "" : ", no double buffer")
       << (c.homes_in_files ? ", homes in files" : "") << ", activation share "
       << c.session.activation_share << (c.homes_take_turns ? ", homes take turns" : "");
  for (std::size_t d = 0; d < c.session.devices.size(); ++d) {
    const DeviceConfig& device = c.session.devices[d];
    text << "\n  device " << d << ": budget " << c.budget_percents[d] << " %, link "
         << device.imitate.link_bytes_per_s << ", slowdown " << device.imitate.slowdown;
    const char* const faults[]{"", ", fails", ", hangs", ", shrinks"};
    if (device.imitate.fault.kind == DeviceFault::Kind::none) continue;
    text << faults[static_cast<std::size_t>(device.imitate.fault.kind)] << " after "
         << device.imitate.fault.after_ops << " ops";
  }
  for (const Contract& job : c.jobs) {
    const TrainConfig& train = job.trial.train;
    text << "\n  job: " << job.text << "; lanes " << train.data_parallel << " (";
    for (const int groups : train.lane_groups) text << groups << " ";
    text << "), at most " << train.max_data_parallel << ", " << to_string(train.order);
    if (train.strategy) text << ", " << train.strategy->num_tracks() << " tracks of a strategy";
    for (const auto& [devices, each] : train.strategies) text << ", a strategy for " << devices;
  }
  for (const RandomChange& change : c.changes) {
    const char* const kinds[]{"resize to ", "add, budget % ", "remove "};
    text << "\n  at step " << change.step << ": " << kinds[static_cast<std::size_t>(change.kind)]
         << (change.kind == RandomChange::Kind::add ? change.percent : change.number);
  }
  return text.str();
}

class RandomCircumstances {
 public:
  explicit RandomCircumstances(std::uint64_t seed) : draw_(seed) { made_.seed = seed; }

  RandomConfiguration make() {
    draw_session();
    for (int jobs = draw_.one_of({1, 1, 1, 2, 3}); jobs > 0; --jobs) draw_job();
    if (draw_.chance(50)) draw_changes();
    return made_;
  }

 private:
  void draw_session() {
    SessionConfig& s = made_.session;
    s.policy = draw_.one_of({PolicyKind::lrtf, PolicyKind::srtf, PolicyKind::fifo,
                             PolicyKind::round_robin, PolicyKind::random});
    s.double_buffer = draw_.chance(75);
    made_.homes_in_files = draw_.chance(25);
    made_.homes_take_turns = draw_.chance(15);
    if (made_.seed % 3 == 0) s.activation_share = made_.seed % 2 == 0 ? 0.25 : 0.6;
    const bool unequal = draw_.chance(15), slow_links = draw_.chance(10);
    const bool tight = draw_.chance(40), faulty = draw_.chance(35);
    for (int devices = draw_.one_of({1, 1, 2, 2, 3, 3, 4, 8}); devices > 0; --devices) {
      DeviceConfig device;
      if (unequal) device.imitate.slowdown = draw_.one_of({1.0, 2.0});
      if (slow_links)
        device.imitate.link_bytes_per_s = static_cast<Bytes>(draw_.between(50, 500)) << 20;
      if (faulty && draw_.chance(50)) device.imitate.fault = draw_fault();
      if (device.imitate.fault.kind == DeviceFault::Kind::hang) s.device_timeout_s = 0.5;
      s.devices.push_back(device);
      made_.budget_percents.push_back(tight ? 0 : draw_.between(0, 130));
    }
  }

  DeviceFault draw_fault() {
    using Kind = DeviceFault::Kind;
    return {draw_.chance(10) ? Kind::hang : draw_.one_of({Kind::fail, Kind::fail, Kind::shrink}),
            static_cast<std::uint64_t>(draw_.between(0, 100))};
  }

  int num_devices() const { return static_cast<int>(made_.session.devices.size()); }

  /// Two dozen contracts for a hundred seeds, so that costs are measured and reference results
  /// computed once each.
  void draw_job() {
    Contract job =
        *RandomContract(made_.seed / 100 * 24 + static_cast<std::uint64_t>(draw_.between(0, 23)));
    TrainConfig& train = job.trial.train;
    train.data_parallel = draw_.between(1, std::min(train.reduction_groups, num_devices()));
    if (draw_.chance(60))
      train.lane_groups = draw_shares(train.reduction_groups, train.data_parallel);
    if (draw_.chance(50))
      train.max_data_parallel = draw_.between(train.data_parallel, train.reduction_groups);
    train.order =
        draw_.one_of({OrderChoice::automatic, OrderChoice::automatic, OrderChoice::automatic,
                      OrderChoice::shard_major, OrderChoice::shard_major, OrderChoice::vn_major});
    if (draw_.chance(25)) {
      place(job.trial);
    } else if (draw_.chance(25)) {
      place_by_devices(job.trial);
    }
    made_.jobs.push_back(std::move(job));
  }

  /// A strategy instead of lanes.
  void place(TrialConfig& trial) {
    TrainConfig& train = trial.train;
    train.data_parallel = 1;
    train.max_data_parallel = 0;
    train.lane_groups.clear();
    const auto model = trial.model(train.batch_size / train.virtual_nodes);
    train.strategy = random_strategy(draw_, model->spec, train.reduction_groups, 4);
  }

  /// A strategy for some numbers of devices.
  void place_by_devices(TrialConfig& trial) {
    TrainConfig& train = trial.train;
    train.lane_groups.clear();
    const auto model = trial.model(train.batch_size / train.virtual_nodes);
    for (int i = 0; i < 3; ++i) {
      StrategyConfig strategy = random_strategy(draw_, model->spec, train.reduction_groups, 4);
      const int devices = strategy.num_tracks();
      if (devices <= train.reduction_groups) train.strategies[devices] = std::move(strategy);
    }
  }

  /// One group each, the rest at random.
  std::vector<int> draw_shares(int groups, int lanes) {
    std::vector<int> shares(static_cast<std::size_t>(lanes), 1);
    for (int left = groups - lanes; left > 0; --left) {
      ++shares[static_cast<std::size_t>(draw_.between(0, lanes - 1))];
    }
    return shares;
  }

  void draw_changes() {
    const TrainConfig& first = made_.jobs[0].trial.train;
    const int most_lanes = std::max(first.data_parallel, first.max_data_parallel);
    for (int changes = draw_.between(1, 4); changes > 0; --changes) {
      made_.changes.push_back({draw_.one_of({RandomChange::Kind::resize, RandomChange::Kind::add,
                                             RandomChange::Kind::remove}),
                               draw_.between(1, static_cast<int>(first.max_steps) - 1), 0,
                               draw_.between(0, 130)});
      RandomChange& change = made_.changes.back();
      const bool resize = change.kind == RandomChange::Kind::resize;
      change.number = resize ? draw_.between(1, most_lanes) : draw_.between(0, num_devices());
    }
  }

  Draw draw_;
  RandomConfiguration made_;
};

}  // namespace spillway::testing
