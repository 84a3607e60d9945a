#include "trainer/planning/plan_trial.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <sstream>
#include <utility>

#include "core/base/xxh3.h"
#include "scheduler/plan/need.h"
#include "scheduler/plan/placement.h"
#include "spillway/data_source.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "spillway/session_config.h"
#include "trainer/compute/optimizer.h"
#include "trainer/planning/largest_layer.h"

namespace spillway {
namespace {

/// Number of evaluation virtual nodes: all whole ones of the data, at most eval_batches batches.
int evaluation_vns(const TrialConfig& trial) {
  if (!trial.data->eval) return 0;
  const TrainConfig& train = trial.train;
  const auto vn_size = static_cast<std::uint64_t>(train.batch_size / train.virtual_nodes);
  const std::uint64_t available = trial.data->eval->num_samples() / vn_size;
  if (available == 0) {
    throw ConfigError("data.eval_fraction", 0,
                      fmt::format("leaves {} samples for evaluation, fewer than the {} of one "
                                  "virtual node; use a larger fraction or 0",
                                  trial.data->eval->num_samples(), vn_size));
  }
  const auto wanted = static_cast<std::uint64_t>(train.eval_batches) *
                      static_cast<std::uint64_t>(train.virtual_nodes);
  return static_cast<int>(std::min(available, wanted));
}

/// Weights, their copies, moments and gradients.
Bytes training_state_bytes(const Layout& layout) {
  return layout.shared_bytes + layout.weights_plane + layout.copies_plane +
         static_cast<Bytes>(layout.moments) * layout.moments_plane + layout.sum_plane;
}

std::string described(const TrialConfig& trial) {
  const bool chosen = trial.train.order != OrderChoice::automatic;
  return "trial " + trial.name +
         (chosen ? " in order " + std::string(to_string(trial.train.order)) : "");
}

void describe_home(const Layout& layout, TrialPlan& summary) {
  summary.shared_bytes = layout.shared_bytes;
  Xxh3 content;
  for (const SharedBlock& block : layout.shared) {
    content.add(block.content.data(), block.content.size());
  }
  if (layout.shared_bytes > 0) summary.shared_content = content.hex();
  summary.home_weights_bytes = layout.weights_plane + layout.copies_plane;
  summary.home_moments_bytes = static_cast<Bytes>(layout.moments) * layout.moments_plane;
  summary.home_sums_bytes = layout.sums_bytes;
}

std::string parts_of_home(const Layout& layout) {
  TrialPlan home;
  describe_home(layout, home);
  const Bytes known = home.home_weights_bytes + home.home_moments_bytes + home.home_sums_bytes;
  return fmt::format("weights {}, moments {}, gradient sums {}, boundaries and batches {}",
                     format_bytes(home.home_weights_bytes + layout.shared_bytes),
                     format_bytes(home.home_moments_bytes), format_bytes(home.home_sums_bytes),
                     format_bytes(layout.home_bytes - known));
}

void describe_shards(const NeedTable& table, const std::vector<LayerRange>& shards,
                     TrialPlan& summary) {
  for (LayerRange shard : shards) {
    const auto &first = table.model.layers[at(shard.begin)].name,
               &last = table.model.layers[at(shard.end - 1)].name;
    summary.shards.push_back(first == last ? first : first + " - " + last);
    summary.shard_weights_bytes += range_need(table, shard).weights();
  }
}

UnitNeed largest_unit(const NeedTable& table, const std::vector<LayerRange>& shards) {
  UnitNeed largest;
  for (LayerRange shard : shards) {
    const UnitNeed need = range_need(table, shard).largest();
    if (need.total(table.split) > largest.total(table.split)) largest = need;
  }
  return largest;
}

void describe_unit(const UnitNeed& unit, TrialPlan& summary) {
  summary.unit_weights_bytes = unit.weights;
  summary.unit_sums_bytes = unit.sums;
  summary.unit_activations_bytes = unit.workspace;
  summary.unit_boundaries_bytes = unit.op_area;
}

/// An upper bound of the home: every edge is a boundary with a part from each maker and a gradient
/// for each reader.
Bytes most_home_bytes(const ModelSpec& model, const JobShape& shape, const Layout& layout) {
  std::vector<Bytes> readers(model.edges.size());
  for (const LayerSpec& layer : model.layers) {
    for (int e : layer.inputs) ++readers[at(e)];
  }
  const auto vns = static_cast<Bytes>(shape.virtual_nodes);
  const auto eval_vns = static_cast<Bytes>(shape.eval_virtual_nodes);
  Bytes bytes = layout.all_home_bytes();
  for (std::size_t e = 0; e < model.edges.size(); ++e) {
    const auto makers = static_cast<Bytes>(model.edges[e].makers);
    bytes += round_up(model.edges[e].tensor.bytes(), kAlignment) *
             (vns * (makers + readers[e]) + eval_vns * makers);
  }
  return bytes;
}

Bytes sent_in_a_step(const JobPlan& plan) {
  return sent_bytes(*plan.programs[kStepAfterStep.index()]);
}

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Finds the shards and the lanes of a trial.
struct Planner {
  Planner(const TrialConfig& config, const ModelSpec& spec, const Profile& costs,
          const std::vector<PlanDevice>& those_present, bool loads_ahead, const HostTeam& team)
      : trial(config),
        model(spec),
        profile(costs),
        devices(those_present),
        double_buffer(loads_ahead),
        network_bytes_per_s(team.network_bytes_per_s),
        shape(shape_of(config, those_present, team)) {}

  Partition cut_of(const JobShape& any, Bytes budget) const {
    return partition(model, profile, any, budget, trial.train.order, double_buffer);
  }

  void cut_under(Bytes budget) {
    least = budget;
    cut = cut_of(shape, budget);
  }

  Bytes largest_budget() const {
    return std::ranges::max_element(devices, {}, &PlanDevice::budget)->budget;
  }

  /// Throws if no device can run the trial. Returns the number of those that can.
  int cut_for_all(Bytes host_budget) {
    if (const auto* given = trial.train.strategy_on(trial.train.data_parallel)) {
      strategy = placed(*given, model, shape.groups);
      cut.smallest_budget = spillway::smallest_budget(NeedTable(model, profile, shape, *strategy));
    } else {
      cut_under(largest_budget());
    }
    std::vector<Bytes> usable;
    for (const PlanDevice& device : devices) {
      if (device.budget >= cut.smallest_budget) usable.push_back(device.budget);
    }
    if (usable.empty()) throw does_not_fit(host_budget);
    const Bytes smallest = *std::ranges::min_element(usable);
    if (strategy) {
      divide_under(smallest);
    } else if (smallest < least) {
      cut_under(smallest);
    }
    return static_cast<int>(usable.size());
  }

  void divide_under(Bytes budget) {
    least = budget;
    divide_to_fit(*strategy, NeedTable(model, profile, shape, *strategy), budget);
    cut.fits = true;
    cut.shards = layers_of(*strategy);
  }

  /// Hosts exchange the sums of a shard while the shards before it compute, if `plan` has one for
  /// all layers, and if more shards pay and have room.
  void cut_for_exchange(JobPlan& plan, Bytes host_budget) {
    constexpr Bytes kMoreHome = 4;  // a quarter
    const bool trains = shape.first_step < shape.max_steps;
    const bool is_free = plan.vn_major && trial.train.order == OrderChoice::automatic;
    if (!is_free || !trains || !shape.has_peers()) return;
    const auto sent = static_cast<double>(sent_in_a_step(plan));
    auto shards = shards_for_exchange(NeedTable(model, profile, shape), shape, least,
                                      sent / network_bytes_per_s);
    if (shards.size() == 1) return;
    JobPlan with_shards =
        lower(model, profile, shape, data_parallel(shards, lane_ranges(shape), /*stay=*/true));
    const Bytes home = plan.layout.all_home_bytes();
    const Bytes most = std::min(host_budget, home + home / kMoreHome);
    if (with_shards.layout.all_home_bytes() > most) return;
    plan = std::move(with_shards);
    cut.shards = std::move(shards);
    shards_stay = true;
  }

  JobPlan lowered() const {
    if (!strategy) return lower(model, profile, shape, cut.shards, cut.vn_major);
    JobPlan plan = lower(model, profile, shape, *strategy);
    const bool may_change_places =
        strategy->tracks == 1 ? has_equal_devices(devices) : are_alike(devices);
    if (may_change_places) return plan;  // the engine chooses
    // Track t runs on device t while there are enough.
    const auto fits = [&](const PlanDevice& device) { return device.budget >= plan.needed_budget; };
    for (const PlanDevice& device : devices | std::views::filter(fits)) {
      if (plan.track_devices.size() < at(strategy->tracks)) plan.track_devices.push_back(device.id);
    }
    if (plan.track_devices.size() < at(strategy->tracks)) plan.track_devices.clear();
    return plan;
  }

  std::vector<std::string> too_small() const {
    std::vector<std::string> found;
    for (const PlanDevice& device : devices) {
      if (device.budget >= cut.smallest_budget) continue;
      found.push_back(fmt::format("{} has {}", device.name, format_bytes(device.budget)));
    }
    return found;
  }

  bool may_choose_lanes(int usable_devices) const {
    const TrainConfig& train = trial.train;
    return !strategy && train.data_parallel > 1 && train.data_parallel <= usable_devices &&
           train.lane_groups.empty() && !shape.has_peers() && !equally_fast(devices);
  }

  /// Uneven lanes may need more room for sums than even ones. Takes the fastest that fit, on larger
  /// devices only or with shorter lanes, and even lanes if none fit.
  void choose() {
    const NeedTable needs(model, profile, shape);
    const Partition even_cut = cut;
    LaneChoice best{.lane_groups = shape.lane_groups, .least_budget = least, .step_s = kNever};
    const auto choose_within = [&](const LaneLimits& limits) {
      return choose_lanes(needs, even_cut, shape, limits, double_buffer, devices);
    };
    LaneLimits limits{trial.train.data_parallel, shape.groups, even_cut.smallest_budget};
    while (auto choice = choose_within(limits)) {
      const int longest = std::ranges::max(choice->lane_groups);
      const bool fits = take(*choice);
      while (choice && !take(*choice)) {
        choice = choose_within({limits.lanes, limits.groups, cut.smallest_budget});
      }
      if (choice && choice->step_s < best.step_s) best = std::move(*choice);
      if (fits) break;  // shorter lanes are no faster
      limits.groups = longest - 1;
    }
    take(best);
  }

  /// False if these lanes have no room.
  bool take(const LaneChoice& choice) {
    lanes = choice;
    shape.lane_groups = choice.lane_groups;
    cut_under(choice.least_budget);
    return cut.fits;
  }

  /// With a dedicated activation pool: the share with which the trial needs the smallest budget.
  std::string better_share() const {
    if (!shape.split.dedicated_activations()) return "";
    JobShape other = shape;
    Bytes needed = cut.smallest_budget;
    double best = 0;
    for (const double share : {0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, kMostActivations}) {
      other.split.activation_share = share;
      const Bytes with_share = cut_of(other, largest_budget()).smallest_budget;
      if (with_share >= needed) continue;
      needed = with_share;
      best = share;
    }
    if (best == 0) return "";
    std::ostringstream remedy;
    remedy << "or set activation_share to " << best << ", with which it needs "
           << format_bytes(needed);
    return remedy.str();
  }

  DoesNotFit does_not_fit(Bytes host_budget) const {
    const std::string share = strategy ? "" : better_share();
    return DoesNotFit(described(trial), Tier::device, smallest_budget(host_budget),
                      largest_budget(),
                      (share.empty() ? "" : share + "; ") +
                          describe_largest_layer(NeedTable(model, profile, shape)));
  }

  /// The host memory that the trial needs on devices of this budget.
  Bytes home_bytes(const Partition& any) const {
    return lower(model, profile, shape, any.shards, any.vn_major).layout.all_home_bytes();
  }

  /// The smallest budget for which the home fits too, since more shards have more boundaries at
  /// home; if there is none, the smallest budget that devices need.
  Bytes smallest_budget(Bytes host_budget) const {
    if (strategy) return cut.smallest_budget;
    const auto fits = [&](Bytes budget) {
      return home_bytes(cut_of(shape, budget)) <= host_budget;
    };
    Bytes too_small = cut.smallest_budget;
    if (fits(too_small)) return too_small;
    Bytes enough = std::max(too_small, least);
    while (!fits(enough)) {
      if (cut_of(shape, enough).shards.size() == 1) return cut.smallest_budget;
      enough *= 2;
    }
    while (enough - too_small > kPage) {
      const Bytes middle = round_up(too_small + (enough - too_small) / 2, kPage);
      if (middle == enough) break;
      (fits(middle) ? enough : too_small) = middle;
    }
    return enough;
  }

  TrialPlan summary(const JobPlan& plan, Bytes host_budget) const {
    const bool spills = cut.shards.size() > 1 && !shards_stay;
    TrialPlan summary{.num_shards = static_cast<int>(cut.shards.size()),
                      .order = plan.order(),
                      .lanes = plan.strategy.tracks,
                      .lane_groups = shape.lane_groups,
                      .lane_devices = lanes.device_names,
                      .declined = lanes.declined,
                      .home_bytes = plan.layout.home_bytes,
                      .smallest_budget_bytes = cut.smallest_budget,
                      .load_ahead_budget_bytes = spills ? cut.load_ahead_budget : 0,
                      .loads_ahead = spills && double_buffer && least >= cut.load_ahead_budget,
                      .shards_stay = shards_stay,
                      .compute_s_per_step = plan.step_s,
                      .training_state_bytes = training_state_bytes(plan.layout),
                      .sent_bytes_per_step = sent_in_a_step(plan)};
    if (!strategy && most_home_bytes(model, shape, plan.layout) > host_budget) {
      summary.smallest_budget_bytes = smallest_budget(host_budget);
    }
    describe_home(plan.layout, summary);
    const NeedTable table(model, profile, shape, plan.strategy);
    describe_shards(table, cut.shards, summary);
    describe_unit(
        shards_stay ? need_together(table, shape, cut.shards) : largest_unit(table, cut.shards),
        summary);
    for (std::size_t s = 0; strategy && s < strategy->stages.size(); ++s) {
      summary.placement.push_back(letters_of(*strategy, s, model));
    }
    return summary;
  }

  const TrialConfig& trial;
  const ModelSpec& model;
  const Profile& profile;
  const std::vector<PlanDevice>& devices;
  const bool double_buffer;
  const double network_bytes_per_s;  // between hosts
  JobShape shape;
  Partition cut;
  bool shards_stay = false;          // see shards_for_exchange()
  std::optional<Strategy> strategy;  // on these devices; nothing: lanes
  Bytes least = 0;                   // the budget of the cut
  LaneChoice lanes;                  // empty: even lanes on any devices
};

}  // namespace

Bytes shared_bytes_of(std::span<const TrialPlan> plans) {
  std::map<std::string, Bytes> by_content;
  for (const TrialPlan& plan : plans) by_content[plan.shared_content] = plan.shared_bytes;
  Bytes bytes = 0;
  for (const auto& [content, shared] : by_content) bytes += shared;
  return bytes;
}

PlannedTrial plan_trial(const TrialConfig& trial, const ModelSpec& model, const Profile& profile,
                        const std::vector<PlanDevice>& devices, Bytes host_budget,
                        bool double_buffer, const std::vector<DeviceId>& avoided,
                        std::int64_t first_step, const HostTeam& team) {
  if (devices.empty()) throw ConfigError("devices", 0, "is empty; add a device");
  Planner planner(trial, model, profile, devices, double_buffer, team);
  planner.shape.first_step = first_step;
  const int usable = planner.cut_for_all(host_budget);
  if (planner.may_choose_lanes(usable)) planner.choose();
  JobPlan plan = planner.lowered();
  planner.cut_for_exchange(plan, host_budget);
  if (!planner.strategy) plan.track_devices = planner.lanes.lane_devices;
  plan.avoided = avoided;
  if (plan.layout.all_home_bytes() > host_budget) {
    throw DoesNotFit(described(trial), Tier::host, plan.layout.all_home_bytes(), host_budget,
                     parts_of_home(plan.layout));
  }
  TrialPlan summary = planner.summary(plan, host_budget);
  return {std::make_shared<JobPlan>(std::move(plan)), usable, planner.too_small(),
          std::move(summary), profile.copy_bytes_per_s};
}

JobShape shape_of(const TrialConfig& trial, const std::vector<PlanDevice>& devices,
                  const HostTeam& team) {
  const TrainConfig& train = trial.train;
  return {.virtual_nodes = train.virtual_nodes,
          .groups = train.reduction_groups,
          .lane_groups = train.lane_groups.empty()
                             ? split_groups(groups_of_host(train, team), train.data_parallel)
                             : train.lane_groups,
          .eval_virtual_nodes = evaluation_vns(trial),
          .max_steps = train.max_steps,
          .eval_steps = train.eval_steps,
          .moments = num_moments(train),
          .split = devices.front().split,  // the same for all
          .host_groups = groups_of_hosts(train, team),
          .host = team.number,
          .shards_state = team.state != HostStateKind::replicated,
          .shadows_state = team.state == HostStateKind::shadowed};
}

void require_devices(const PlannedTrial& planned, int lanes) {
  if (lanes <= planned.usable_devices) return;
  const int number = planned.usable_devices;
  std::string problem = fmt::format("is {}, but only {} {} can run the trial", lanes, number,
                                    number == 1 ? "device" : "devices");
  if (!planned.too_small.empty()) {
    problem += fmt::format(
        "; {}, and the trial needs {} on each; raise the memory of devices, or use data_parallel: "
        "{}",
        fmt::join(planned.too_small, ", "), format_bytes(planned.summary.smallest_budget_bytes),
        number);
  }
  throw ConfigError("train.data_parallel", 0, problem);
}

}  // namespace spillway
