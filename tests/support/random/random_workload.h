#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/plan/lower.h"
#include "scheduler/plan/need.h"
#include "scheduler/plan/partition.h"
#include "scheduler/simulation/virtual_shell.h"

/// Random models, profiles and shapes for property tests; a pure function of the generator.
namespace spillway::testing {

class RandomWorkload {
 public:
  explicit RandomWorkload(std::uint64_t seed)
      : shares_(seed % 3 == 0), divides_(seed % 4 == 1), random_(seed) {}

  /// Whether jobs share frozen parameters.
  bool shares() const { return shares_; }
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return between(1, 100) <= percent; }

  /// 2..8 layers of unequal sizes, a chain or a graph with edges that skip layers; often the first
  /// and last layer share a parameter. In every fourth workload divided layers come between them.
  ModelSpec model() {
    ModelSpec model;
    model.family = "random";
    const int num_layers = between(2, 8);
    model.edges.push_back({"batch", {DType::i64, {{"sample", between(1, 9)}}}, -1, false});
    const bool tied = chance(60);
    const int skips = chance(50) ? 30 : 0;  // in percent
    std::vector<int> unread;
    inner_edges_.clear();
    if (tied) model.params.push_back(parameter("tied"));
    for (int l = 0; l < num_layers; ++l) {
      const bool first = l == 0, last = l + 1 == num_layers;
      LayerSpec layer{"layer." + std::to_string(l), "random", {}, {}, {}};
      for (int p = between(first || last ? 0 : 1, 3); p > 0; --p) {
        layer.params.push_back(static_cast<int>(model.params.size()));
        model.params.push_back(parameter(layer.name + "." + std::to_string(p)));
      }
      if (tied && (first || last)) layer.params.push_back(0);
      layer.inputs = first ? std::vector{0} : activations(model, unread, skips, last);
      if (last && !first && chance(70)) layer.inputs.push_back(0);
      if (!last) {
        layer.outputs.push_back(static_cast<int>(model.edges.size()));
        model.edges.push_back({"x" + std::to_string(l),
                               {DType::f32, {{"sample", 1}, {"channel", between(1, 800)}}},
                               static_cast<int>(model.layers.size()),
                               /*differentiable=*/chance(95)});
        unread.push_back(layer.outputs[0]);
      }
      model.layers.push_back(std::move(layer));
      if (divides_ && !last && chance(30)) unread.back() = add_divided(model, unread.back());
    }
    if (shares_) stop_gradients(model);
    model.validate();
    return model;
  }

  Profile profile(const ModelSpec& model) {
    Profile profile;
    for (const LayerSpec& layer : model.layers) {
      LayerProfile cost;
      const Bytes out =
          layer.outputs.empty()
              ? 64
              : model.edges[static_cast<std::size_t>(layer.outputs[0])].tensor.bytes();
      cost.forward_s = between(1, 1000) * 1e-6;
      cost.backward_s = cost.forward_s * between(20, 40) / 10;
      cost.forward_peak = out + static_cast<Bytes>(between(0, 4000));
      cost.graph_retained = out + static_cast<Bytes>(between(0, 4000));
      cost.graph_peak = cost.graph_retained + static_cast<Bytes>(between(0, 2000));
      cost.backward_peak = cost.graph_retained + static_cast<Bytes>(between(0, 9000));
      profile.layers.push_back(cost);
    }
    profile.copy_bytes_per_s = between(1, 100) * 1e6;
    return profile;
  }

  /// `count` different devices in any order.
  std::vector<DeviceId> some_of(int num_devices, std::size_t count) {
    std::vector<DeviceId> devices;
    for (int d = 0; d < num_devices; ++d) devices.emplace_back(d);
    std::ranges::shuffle(devices, random_);
    devices.resize(count);
    return devices;
  }

  /// Any stages on up to four tracks, in units of any size.
  Strategy strategy(const ModelSpec& model, const JobShape& shape) {
    Strategy strategy{.tracks = between(1, 4)};
    const int num_layers = static_cast<int>(model.layers.size());
    const int per_stage = between(1, 3);
    for (int begin = 0; begin < num_layers;) {
      const int end = std::min(begin + between(1, per_stage), num_layers);
      Stage stage{{begin, end}, {}, chance(70) ? 0 : between(1, 2)};
      for (int group = 0; group < shape.groups;) {
        const int last = chance(50) ? shape.groups : between(group + 1, shape.groups);
        stage.cells.push_back({{group, last}, between(0, strategy.tracks - 1)});
        group = last;
      }
      strategy.stages.push_back(std::move(stage));
      begin = end;
    }
    strategy.chunk = between(0, 3);
    strategy.window = chance(50) ? 0 : between(1, 4);
    if (chance(50)) strategy.first = FirstChoice::forward;
    if (chance(25)) strategy.graphs = GraphChoice::recompute;
    return strategy;
  }

  JobShape shape(int num_devices) {
    JobShape shape;
    shape.groups = between(1, 6);
    shape.virtual_nodes = shape.groups * between(1, 3);
    shape.lane_groups = split_groups(shape.groups, between(1, std::min(shape.groups, num_devices)));
    shape.eval_virtual_nodes = chance(50) ? between(1, 6) : 0;
    shape.max_steps = between(1, 4);
    shape.eval_steps = between(0, 2);
    shape.moments = between(1, 2);
    return shape;
  }

 private:
  /// A divided layer that reads edge `input`, which no other layer reads. Its pieces make terms of
  /// one edge, or an edge each. Returns the edge that the layer behind them makes.
  int add_divided(ModelSpec& model, int input) {
    const std::string name = "divided." + std::to_string(model.layers.size());
    const int pieces = between(2, 7);
    const bool makes_terms = chance(60);
    const auto add_edge = [&](int makers) {
      model.edges.push_back({name + "." + std::to_string(model.edges.size()),
                             {DType::f32, {{"sample", 1}, {"channel", between(1, 800)}}},
                             static_cast<int>(model.layers.size()),
                             /*differentiable=*/chance(95)});
      model.edges.back().makers = makers;
      return static_cast<int>(model.edges.size()) - 1;
    };
    EdgeSpec& read = model.edges[static_cast<std::size_t>(input)];
    if (has_gradient(read)) read.reading_pieces = pieces;
    LayerSpec behind{name, "random", {}, {}, {}};
    for (int i = 0; i < pieces; ++i) {
      LayerSpec piece{name + "/" + std::to_string(i), "random", {}, {input}, {}};
      piece.piece = i;
      piece.pieces = pieces;
      for (int p = between(0, 2); p > 0; --p) {
        piece.params.push_back(static_cast<int>(model.params.size()));
        model.params.push_back(parameter(piece.name + "." + std::to_string(p)));
      }
      if (i == 0 || !makes_terms) behind.inputs.push_back(add_edge(makes_terms ? pieces : 1));
      piece.outputs = {behind.inputs.back()};
      model.layers.push_back(std::move(piece));
    }
    inner_edges_.push_back(input);
    inner_edges_.insert(inner_edges_.end(), behind.inputs.begin(), behind.inputs.end());
    behind.outputs = {add_edge(1)};
    model.layers.push_back(std::move(behind));
    return model.layers.back().outputs.front();
  }
  /// Edges behind which nothing is trained have no gradient, as in the models of families.
  static void stop_gradients(ModelSpec& model) {
    std::vector<bool> trained(model.edges.size());
    for (const LayerSpec& layer : model.layers) {
      const auto is_trained = [&](int p) {
        return model.params[static_cast<std::size_t>(p)].trainable;
      };
      const auto reads = [&](int e) { return trained[static_cast<std::size_t>(e)]; };
      const bool trains =
          std::ranges::any_of(layer.params, is_trained) || std::ranges::any_of(layer.inputs, reads);
      for (int e : layer.outputs) {
        if (trains) trained[static_cast<std::size_t>(e)] = true;
      }
    }
    for (std::size_t e = 0; e < model.edges.size(); ++e) {
      model.edges[e].differentiable &= trained[e];
      if (!has_gradient(model.edges[e])) model.edges[e].reading_pieces = 1;
    }
  }

  /// The inputs of a layer: all edges without a reader so far, or all but the last; and older
  /// edges.
  std::vector<int> activations(const ModelSpec& model, std::vector<int>& unread, int skips,
                               bool last) {
    std::vector<int> left;
    if (!last && unread.size() > 1 && chance(skips)) {
      left = {unread.back()};
      unread.pop_back();
    }
    std::vector<int> read = std::exchange(unread, left);
    for (int e = 1; e < static_cast<int>(model.edges.size()); ++e) {
      const bool known = std::ranges::count(read, e) + std::ranges::count(left, e) +
                             std::ranges::count(inner_edges_, e) >
                         0;
      if (!known && chance(skips)) read.push_back(e);
    }
    if (!last && unread.empty() && read.size() > 1 && chance(skips)) {
      unread.push_back(read.back());  // read again, or by the next layer only
      if (chance(50)) read.pop_back();
    }
    return read;
  }
  ParamSpec parameter(const std::string& name) {
    ParamSpec spec{
        name, {DType::f32, {{"channel", between(1, 3000)}}}, {}, chance(shares_ ? 40 : 80)};
    const bool tied = name == "tied";  // statistics are of one layer
    if (!spec.trainable && !tied && chance(50)) spec.statistic.kind = StatisticSpec::Kind::average;
    // By size, not at random, so that other draws do not change.
    const bool is_narrow = spec.tensor.elements() % 3 == 0;
    if (is_narrow && !spec.is_statistic()) spec.tensor.dtype = DType::bf16;
    if (spec.tensor.elements() % 2 == 0) spec.gradient = DType::bf16;
    if (shares_) spec.content = "the same in all jobs";
    return spec;
  }

  bool shares_, divides_;
  std::vector<int> inner_edges_;  // of divided layers
  std::mt19937_64 random_;
};

/// Stops a job, or fails its next action.
struct Accident {
  int after_events = 0;
  JobId job;
  bool fails = false;
};

struct Workload {
  EngineConfig config;
  VirtualCosts costs;
  std::vector<std::shared_ptr<const JobPlan>> jobs;
  std::vector<Accident> accidents;
};

/// Between some of the devices; none for every third seed.
inline LinkTable random_links(std::uint64_t seed, int num_devices) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int min, int max) {
    return std::uniform_int_distribution<int>(min, max)(random);
  };
  std::vector<LinkConfig> links;
  for (int i = num_devices < 2 || seed % 3 == 0 ? 0 : draw(1, 3); i > 0; --i) {
    LinkConfig& link = links.emplace_back();
    for (int d = 0; d < num_devices; ++d) {
      if (draw(0, 2) > 0) link.between.push_back(d);
    }
    link.bytes_per_s = static_cast<Bytes>(draw(1, 200)) * 1'000'000;
    link.latency_s = draw(0, 1) * 1e-4;
    link.shared = draw(0, 1) == 1;
  }
  return LinkTable(links);
}

/// Jobs and devices with budgets from the smallest to ample. Sometimes every device differs,
/// sometimes jobs stop or fail.
inline Workload make_workload(std::uint64_t seed) {
  RandomWorkload random(seed);
  Workload workload;
  workload.config.split = {seed % 4 == 0 ? 0.3 : 0};
  const int num_devices = random.between(1, 4);
  const int num_jobs = random.between(1, 6);
  std::vector<std::pair<ModelSpec, Profile>> models;
  std::vector<JobShape> shapes;
  Bytes least = 0, resident = 0;
  for (int j = 0; j < num_jobs; ++j) {
    ModelSpec model = random.model();
    Profile profile = random.profile(model);
    if (j > 0 && random.shares()) std::tie(model, profile) = models.front();
    shapes.push_back(random.shape(num_devices));
    shapes.back().split = workload.config.split;
    const auto whole = LayerRange{0, static_cast<int>(model.layers.size())};
    least =
        std::max(least, partition(model, profile, shapes.back(), 0, OrderChoice::shard_major, false)
                            .smallest_budget);
    resident = std::max(resident,
                        unit_need(model, profile, shapes.back(), whole).total(shapes.back().split));
    models.emplace_back(std::move(model), std::move(profile));
  }
  const bool tight = random.chance(40);
  for (int d = 0; d < num_devices; ++d) {
    const auto percent = static_cast<Bytes>(tight ? 0 : random.between(0, 150));
    workload.config.device_budgets.push_back(least + resident * percent / 100);
  }
  const Bytes budget = *std::ranges::min_element(workload.config.device_budgets);
  workload.config.double_buffer = random.chance(75);
  workload.config.policy = make_policy(
      kPolicyNames.at(static_cast<std::size_t>(random.between(0, kPolicyNames.size() - 1))));
  workload.costs.copy_bytes_per_s = random.between(1, 200) * 1e6;
  workload.costs.links = random_links(seed, num_devices);
  workload.costs.host_workers = random.between(1, 3);
  Bytes largest_home = 0, all_homes = 0;
  for (std::size_t j = 0; j < models.size(); ++j) {
    const auto& [model, profile] = models[j];
    const auto order = random.chance(50) ? OrderChoice::automatic : OrderChoice::shard_major;
    const Partition cut =
        partition(model, profile, shapes[j], budget, order, workload.config.double_buffer);
    if (!cut.fits) throw std::logic_error("a workload that must fit does not");
    JobPlan plan = lower(model, profile, shapes[j], cut.shards, cut.vn_major);
    if (random.chance(25)) {
      plan.track_devices = random.some_of(num_devices, at(plan.strategy.tracks));
    }
    workload.jobs.push_back(std::make_shared<JobPlan>(std::move(plan)));
    largest_home = std::max(largest_home, workload.jobs.back()->layout.all_home_bytes());
    all_homes += workload.jobs.back()->layout.home_bytes;
  }
  all_homes += workload.jobs.front()->layout.shared_bytes;  // of all jobs, or of none
  workload.config.host_budget = random.chance(50) ? all_homes : largest_home;
  const int num_accidents = random.chance(40) ? random.between(1, num_jobs) : 0;
  for (int i = 0; i < num_accidents; ++i) {
    workload.accidents.push_back(
        {random.between(0, 200), JobId(random.between(0, num_jobs - 1)), random.chance(50)});
  }
  return workload;
}

/// Jobs with strategies of any kind, on devices from the smallest that hold them.
inline Workload make_strategies(std::uint64_t seed) {
  RandomWorkload random(seed);
  Workload workload;
  workload.config.policy = make_policy("fifo");
  Bytes least = 0;
  for (int j = random.between(1, 3); j > 0; --j) {
    const ModelSpec model = random.model();
    const Profile profile = random.profile(model);
    const JobShape shape = random.shape(1);
    workload.jobs.push_back(
        std::make_shared<JobPlan>(lower(model, profile, shape, random.strategy(model, shape))));
    least = std::max(least, workload.jobs.back()->needed_budget);
    workload.config.host_budget += workload.jobs.back()->layout.all_home_bytes();
  }
  for (int d = random.between(1, 4); d > 0; --d) {
    workload.config.device_budgets.push_back(least * static_cast<Bytes>(random.between(10, 30)) /
                                             10);
  }
  workload.costs.links =
      random_links(seed, static_cast<int>(workload.config.device_budgets.size()));
  return workload;
}

}  // namespace spillway::testing
