#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/random/random_workload.h"

/// Random workloads whose devices and plans change while they run; a pure function of the seed.
namespace spillway::testing {

/// A change after `after_events` events. `device` is taken modulo the number of devices.
struct Change {
  enum class Kind {
    join,
    remove,
    lose,
    hang,
    link,
    stop,
    fail,
    pause,
    resume,
    resize,
    hold,
    suspend,
    let_go,
    interrupt,       ///< and goes on with a plan later
    lose_exchanges,  ///< the same, from exchanges in flight
    finish,
    submit  ///< submits the next job
  };
  Kind kind = Kind::join;
  int after_events = 0;
  JobId job;
  int device = 0;
  std::size_t plan = 0;    ///< resize, interrupt, lose_exchanges: of the job's plans
  Bytes budget = 0;        ///< join
  double seconds = 0;      ///< hang: until the device counts as lost
  double bytes_per_s = 0;  ///< link
  Hold hold;
};

struct ElasticWorkload {
  EngineConfig config;
  VirtualCosts costs;
  std::vector<std::vector<std::shared_ptr<const JobPlan>>>
      plans;                   ///< by job, the first one initially
  std::size_t first_jobs = 0;  ///< submitted at the start
  std::vector<Change> changes;
  Bytes ample = 0;  ///< a device of this budget runs any plan

  Bytes home_bytes(std::size_t job) const {
    Bytes most = 0;
    for (const auto& plan : plans[job]) most = std::max(most, plan->layout.home_bytes);
    return most;
  }
};

class RandomElasticWorkload {
 public:
  explicit RandomElasticWorkload(std::uint64_t seed) : random_(seed) {}

  ElasticWorkload make() {
    const int num_jobs = random_.between(1, 4);
    for (int j = 0; j < num_jobs; ++j) add_job();
    workload_.first_jobs = static_cast<std::size_t>(random_.between(1, num_jobs));
    workload_.ample = 2 * most_;
    const int num_devices = random_.between(1, 4);
    for (int d = 0; d < num_devices; ++d) workload_.config.device_budgets.push_back(budget());
    workload_.config.double_buffer = random_.chance(75);
    workload_.config.policy = make_policy(
        kPolicyNames.at(static_cast<std::size_t>(random_.between(0, kPolicyNames.size() - 1))));
    Bytes largest = 0, all = 0;
    for (std::size_t j = 0; j < workload_.plans.size(); ++j) {
      const Bytes shared = workload_.plans[j].front()->layout.shared_bytes;
      largest = std::max(largest, workload_.home_bytes(j) + shared);
      all += workload_.home_bytes(j) + (j == 0 ? shared : 0);  // of all jobs, or of none
    }
    workload_.config.host_budget = random_.chance(50) ? all : largest;
    workload_.costs.copy_bytes_per_s = random_.between(1, 200) * 1e6;
    workload_.costs.host_workers = random_.between(1, 3);
    workload_.costs.cancel_s = random_.chance(50) ? 0 : random_.between(1, 2000) * 1e-6;
    for (int i = random_.between(0, 10); i > 0; --i) add_change();
    return std::move(workload_);
  }

 private:
  /// Up to four plans of one contract: other lanes, shards, orders and strategies; one avoids a
  /// device.
  void add_job() {
    ModelSpec model = random_.model();
    Profile profile = random_.profile(model);
    if (random_.shares()) {
      if (!first_) first_.emplace(model, profile);
      std::tie(model, profile) = *first_;
    }
    for (double* rate : {&profile.update_bytes_per_s, &profile.reduce_bytes_per_s}) {
      *rate = random_.between(1, 100) * (random_.chance(50) ? 1e6 : 1e8);
    }
    JobShape contract = random_.shape(1);
    const bool has_peers = contract.groups > 1 && random_.chance(30);
    contract.shards_state = has_peers && random_.chance(50);
    contract.shadows_state = contract.shards_state && random_.chance(50);
    if (contract.shards_state) add_peers(contract);  // the same ones in all plans
    auto& plans = workload_.plans.emplace_back();
    for (int i = random_.between(1, 4); i > 0; --i) {
      JobShape shape = contract;
      if (has_peers && !shape.shards_state) add_peers(shape);
      shape.lane_groups = lane_groups(shape.own_groups().end - shape.own_groups().begin);
      const auto order = random_.chance(30) ? OrderChoice::automatic : OrderChoice::shard_major;
      const bool ahead = random_.chance(50);
      const Partition tight = partition(model, profile, shape, 0, OrderChoice::shard_major, ahead);
      const Bytes budget = tight.smallest_budget * static_cast<Bytes>(random_.between(4, 12)) / 4;
      const Partition cut = partition(model, profile, shape, budget, order, ahead);
      JobPlan plan =
          lower(model, profile, shape,
                !has_peers && random_.chance(40) ? random_.strategy(model, shape)
                                                 : data_parallel(cut.shards, lane_ranges(shape),
                                                                 /*stay=*/random_.chance(30)));
      if (plans.size() == 2) plan.avoided = {DeviceId(1)};
      plans.push_back(std::make_shared<JobPlan>(std::move(plan)));
      most_ = std::max(most_, plans.back()->needed_budget);
    }
  }

  /// Up to three hosts; some of them may take no part.
  void add_peers(JobShape& shape) {
    shape.host_groups.assign(3, 0);
    for (int g = 0; g < shape.groups; ++g) ++shape.host_groups[at(random_.between(0, 2))];
    const auto most = std::ranges::max_element(shape.host_groups);
    shape.host = static_cast<int>(most - shape.host_groups.begin());
  }

  /// One lane, or up to four of any sizes.
  std::vector<int> lane_groups(int groups) {
    std::vector<int> sizes(at(random_.between(1, std::min(groups, 4))), 1);
    for (int left = groups - static_cast<int>(sizes.size()); left > 0; --left) {
      ++sizes[at(random_.between(0, static_cast<int>(sizes.size()) - 1))];
    }
    return sizes;
  }

  /// Usually enough for every plan, sometimes for few or none.
  Bytes budget() {
    return random_.chance(75) ? most_ * static_cast<Bytes>(random_.between(4, 10)) / 4
                              : most_ * static_cast<Bytes>(random_.between(1, 4)) / 4;
  }

  void add_change() {
    using enum Change::Kind;
    static constexpr Change::Kind kKinds[] = {
        join,    join,   remove, lose,   lose,      hang,          link, stop,
        fail,    pause,  pause,  resume, resize,    resize,        hold, hold,
        suspend, let_go, finish, submit, interrupt, lose_exchanges};
    Change change{.kind = kKinds[random_.between(0, std::size(kKinds) - 1)]};
    change.after_events = random_.between(0, random_.chance(50) ? 60 : 600);
    change.job = JobId(random_.between(0, static_cast<int>(workload_.plans.size()) - 1));
    change.device = random_.between(0, 9);
    const auto& plans = workload_.plans[change.job.index()];
    change.plan = static_cast<std::size_t>(random_.between(0, static_cast<int>(plans.size()) - 1));
    change.budget = budget();
    change.seconds = random_.between(1, 20000) * 1e-6;
    change.bytes_per_s = random_.between(1, 1000) * 1e5;
    change.hold = {.step = random_.between(0, 5), .evaluate = random_.chance(50)};
    workload_.changes.push_back(change);
  }

  std::optional<std::pair<ModelSpec, Profile>> first_;  // of all jobs, if they share
  RandomWorkload random_;
  ElasticWorkload workload_;
  Bytes most_ = 0;
};

}  // namespace spillway::testing
