#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/random/random_workload.h"

/// Random jobs of a client, and the lives of a controller that crashes; a pure function of the
/// seed.
namespace spillway::testing {

/// A job that a client submits, and its possible plans, all of one contract.
struct ClientJob {
  struct Cut {
    std::vector<int> lane_groups;
    Partition partition;
  };
  std::string id, config;
  int submitted_after = 0;  ///< events, over all lives
  bool asks_twice = false;  ///< submits it again although it was acknowledged
  std::int64_t save_every = 1;
  ModelSpec model;
  Profile profile;
  JobShape shape;
  std::vector<Cut> cuts;

  /// A plan that continues after `first_step` steps.
  std::shared_ptr<const JobPlan> plan(std::size_t cut, std::int64_t first_step) const {
    const Cut& chosen = cuts[cut % cuts.size()];
    JobShape here = shape;
    here.lane_groups = chosen.lane_groups;
    here.first_step = first_step;
    return std::make_shared<JobPlan>(
        lower(model, profile, here, chosen.partition.shards, chosen.partition.vn_major));
  }
};

/// From a controller's start to its crash, on devices of its own.
struct Life {
  EngineConfig config;
  int num_events = std::numeric_limits<int>::max();  ///< the last one has no crash
  int loses_device_after = 0;                        ///< events; 0: never
};

struct CrashWorkload {
  std::vector<ClientJob> jobs;
  std::vector<Life> lives;
  VirtualCosts costs;
  Bytes ample = 0;  ///< a device of this budget runs any plan
};

class RandomCrashWorkload {
 public:
  explicit RandomCrashWorkload(std::uint64_t seed) : random_(seed) {}

  CrashWorkload make() {
    for (int jobs = random_.between(1, 4); jobs > 0; --jobs) add_job();
    made_.ample = 2 * most_device_;
    for (int crashes = random_.between(1, 4); crashes > 0; --crashes) {
      add_life().num_events = random_.between(0, random_.chance(50) ? 300 : 1500);
    }
    add_life();
    made_.costs.copy_bytes_per_s = random_.between(1, 200) * 1e6;
    made_.costs.host_workers = random_.between(1, 3);
    return std::move(made_);
  }

 private:
  void add_job() {
    ClientJob& job = made_.jobs.emplace_back();
    job.id = "job " + std::to_string(made_.jobs.size());
    job.config = "{seed: " + std::to_string(made_.jobs.size()) + "}";
    job.submitted_after = random_.chance(50) ? 0 : random_.between(1, 1000);
    job.asks_twice = random_.chance(30);
    job.save_every = random_.between(1, 3);
    job.model = random_.model();
    job.profile = random_.profile(job.model);
    if (random_.shares() && made_.jobs.size() > 1) {
      job.model = made_.jobs.front().model;
      job.profile = made_.jobs.front().profile;
    }
    job.shape = random_.shape(1);
    job.shape.max_steps = random_.between(1, 10);
    for (int cuts = random_.between(1, 3); cuts > 0; --cuts) add_cut(job);
    Bytes home = 0, shared = 0;
    for (std::size_t c = 0; c < job.cuts.size(); ++c) {
      const auto plan = job.plan(c, 0);
      most_device_ = std::max(most_device_, plan->needed_budget);
      home = std::max(home, plan->layout.home_bytes);
      shared = plan->layout.shared_bytes;
    }
    most_home_ = std::max(most_home_, home + shared);
    all_homes_ += home + (made_.jobs.size() == 1 ? shared : 0);  // of all jobs, or of none
  }

  void add_cut(ClientJob& job) {
    JobShape shape = job.shape;
    shape.lane_groups = split_groups(shape.groups, random_.between(1, std::min(shape.groups, 4)));
    const bool ahead = random_.chance(50);
    const auto order = random_.chance(30) ? OrderChoice::automatic : OrderChoice::shard_major;
    const auto cut = [&](Bytes budget, OrderChoice choice) {
      return partition(job.model, job.profile, shape, budget, choice, ahead);
    };
    const Bytes least = cut(0, OrderChoice::shard_major).smallest_budget;
    const Bytes budget = least * static_cast<Bytes>(random_.between(4, 12)) / 4;
    job.cuts.push_back({shape.lane_groups, cut(budget, order)});
  }

  Life& add_life() {
    Life& life = made_.lives.emplace_back();
    for (int devices = random_.between(1, 4); devices > 0; --devices) {
      const auto quarters = static_cast<Bytes>(random_.between(random_.chance(75) ? 4 : 1, 10));
      life.config.device_budgets.push_back(most_device_ * quarters / 4);
    }
    life.config.host_budget = random_.chance(50) ? all_homes_ : most_home_;
    life.config.double_buffer = random_.chance(75);
    life.config.policy = make_policy(
        kPolicyNames.at(static_cast<std::size_t>(random_.between(0, kPolicyNames.size() - 1))));
    life.loses_device_after = random_.chance(30) ? random_.between(1, 300) : 0;
    return life;
  }

  RandomWorkload random_;
  CrashWorkload made_;
  Bytes most_device_ = 0, most_home_ = 0, all_homes_ = 0;
};

}  // namespace spillway::testing
