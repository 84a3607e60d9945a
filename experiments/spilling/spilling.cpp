#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "experiments/spilling/resident.h"
#include "experiments/support/spread.h"
#include "experiments/support/trained.h"
#include "trainer/config/batch_split.h"
#include "trainer/planning/plan_trial.h"
#include "trainer/profile/pilot.h"

/// What spilling costs: a GPT on a quarter of its training state against the same GPT in memory.
namespace spillway::experiments {
namespace {

struct Setting {
  int blocks, width, tokens;
  int steps, repetitions;
};

/// How a session trains; a budget of 0 is ample.
struct Spilled {
  Bytes budget = 0;
  double link_bytes_per_s = 0;
  bool double_buffer = true;
};

/// One way to train, and what its runs gave.
struct Way {
  std::string name, link, double_buffer;
  std::function<Trained()> train;
  double link_bytes_per_s = 0;
  std::vector<Trained> runs = {};
};

/// The ways, in the order in which each repetition takes them. The first three are what all others
/// are compared with.
class Comparison {
 public:
  explicit Comparison(const Setting& setting) : setting_(setting), cache_("spillway_spilling") {
    trial_ = gpt_trial({.num_hidden_layers = setting.blocks,
                        .hidden_size = setting.width,
                        .max_position_embeddings = setting.tokens,
                        .dropout = 0});
    trial_.train.reduction_groups = reduction_groups_of(trial_.train);
    trial_.train.max_steps = setting.steps;
    plan();
    add_ways();
  }

  void run() {
    for (int i = 0; i < setting_.repetitions; ++i) {
      for (Way& way : ways_) way.runs.push_back(way.train());
    }
  }
  void print() const;

 private:
  static constexpr std::size_t kVnByVn = 0, kShardByShard = 1, kNoRecompute = 2, kSpilled = 3;

  void plan();
  void add_ways();
  void add_links(const std::string& name, double bytes_per_s);
  Trained train_resident(ResidentTrainer::Order order) const;
  Trained train_spilled(const Spilled& how) const;
  SessionConfig session_of(const Spilled& how) const;
  std::string speed_of(const Way& way, std::size_t other) const;
  void check_bits() const;
  void print_setting() const;
  void print_speeds() const;
  void print_links() const;

  const Setting setting_;
  const PilotCache cache_;
  TrialConfig trial_;
  Bytes budget_ = 0;
  PlannedTrial planned_;
  double forward_s_ = 0, unit_s_ = 0, shard_bytes_ = 0;  ///< means
  std::vector<Way> ways_;
};

SessionConfig Comparison::session_of(const Spilled& how) const {
  return {.devices = {{.memory = how.budget ? how.budget : 4_GiB,
                       .imitate = {.link_bytes_per_s = static_cast<Bytes>(how.link_bytes_per_s)}}},
          .double_buffer = how.double_buffer,
          .pilot_cache = cache_.path()};
}

/// A quarter of the training state, how the model is cut for it, and mean sizes of a unit.
void Comparison::plan() {
  const auto model = trial_.model(trial_.train.batch_size / trial_.train.virtual_nodes);
  const Profile profile = Pilot(cache_.path()).measure(*model);
  budget_ = round_up(static_cast<Bytes>(model->spec.num_parameters()) * 4, kPage);
  trial_.train.order = OrderChoice::shard_major;
  planned_ = plan_trial(trial_, model->spec, profile, {PlanDevice{.budget = budget_}}, 4_GiB,
                        /*double_buffer=*/true);
  const JobPlan& plan = *planned_.plan;
  const auto num_shards = static_cast<double>(plan.strategy.stages.size());
  double forward_s = 0;
  for (const LayerProfile& layer : profile.layers) forward_s += layer.forward_s;
  forward_s_ = forward_s * trial_.train.virtual_nodes / num_shards;
  unit_s_ = plan.step_s / (2 * num_shards - 1);
  shard_bytes_ = static_cast<double>(planned_.summary.shard_weights_bytes) / num_shards;
}

void Comparison::add_ways() {
  using Order = ResidentTrainer::Order;
  ways_.push_back({"resident, same recompute, VN by VN", "", "",
                   [this] { return train_resident(Order::vn_by_vn); }});
  ways_.push_back({"resident, same recompute, shard by shard", "", "",
                   [this] { return train_resident(Order::shard_by_shard); }});
  ways_.push_back({"resident, no recompute", "", "", [this] { return train_spilled({}); }});
  ways_.push_back({"spilled", "none", "on", [this] { return train_spilled({.budget = budget_}); }});
  add_links("2 GB/s", 2e9);
  add_links("0.5 GB/s", 5e8);
  add_links("copy = forward unit", shard_bytes_ / forward_s_);
  add_links("copy = mean unit", shard_bytes_ / unit_s_);
}

void Comparison::add_links(const std::string& name, double bytes_per_s) {
  for (const bool double_buffer : {true, false}) {
    const Spilled how{budget_, bytes_per_s, double_buffer};
    ways_.push_back({"spilled", name, double_buffer ? "on" : "off",
                     [this, how] { return train_spilled(how); }, bytes_per_s});
  }
}

Trained Comparison::train_resident(ResidentTrainer::Order order) const {
  ResidentTrainer trainer(trial_, layers_of(planned_.plan->strategy), order);
  Trained trained;
  trained.step_s = step_seconds(trainer.run());
  trained.result.trials.push_back({.losses = trainer.losses()});
  return trained;
}

Trained Comparison::train_spilled(const Spilled& how) const {
  TrialConfig trial = trial_;
  if (how.budget == 0) trial.train.order = OrderChoice::vn_major;
  return train(session_of(how), {trial});
}

/// Over repetitions, of runs of two ways in the same one.
template <typename Value>
Spread compare(const Way& a, const Way& b, const Value& value) {
  std::vector<double> values;
  for (std::size_t i = 0; i < a.runs.size(); ++i) values.push_back(value(a.runs[i], b.runs[i]));
  return spread_of(values);
}

std::string percent(const Spread& share) {
  return text_of({100 * share.median, 100 * share.least, 100 * share.most}, 1);
}

std::string Comparison::speed_of(const Way& way, std::size_t other) const {
  return text_of(compare(way, ways_[other],
                         [](const Trained& a, const Trained& b) { return b.step_s / a.step_s; }),
                 3);
}

/// Throws Error unless all runs computed the same.
void Comparison::check_bits() const {
  const auto losses = [](const Trained& run) { return run.result.trials[0].losses; };
  for (const Way& way : ways_) {
    for (const Trained& run : way.runs) {
      if (losses(run) != losses(ways_[0].runs[0])) throw Error(way.name + " has other losses");
    }
  }
}

void Comparison::print_setting() const {
  const TrialPlan& plan = planned_.summary;
  std::printf("- Model: GPT, %d blocks of width %d; a step is 8 samples of %d tokens, V = 8\n",
              setting_.blocks, setting_.width, setting_.tokens);
  std::printf("- Training state: %s; budget: %s, cut into %d shards of %s of weights in the mean\n",
              format_bytes(plan.training_state_bytes).c_str(), format_bytes(budget_).c_str(),
              plan.num_shards, format_bytes(static_cast<Bytes>(shard_bytes_)).c_str());
  std::printf("- As the pilot measured: a mean unit takes %.0f ms, a forward unit %.0f ms\n",
              1e3 * unit_s_, 1e3 * forward_s_);
  std::printf("- Repetitions: %d, each way once in turn, %d steps; all losses have the same bits\n",
              setting_.repetitions, setting_.steps);
}

void Comparison::print_speeds() const {
  print_head({"", "link", "double buffer", "tokens/s", "of resident, VN by VN",
              "of resident, shard by shard", "of resident, no recompute", "device busy, %",
              "loaded a step, MiB"});
  for (const Way& way : ways_) {
    const auto tokens = compare(way, way, [&](const Trained& run, const Trained&) {
      return static_cast<double>(trial_.train.batch_size * setting_.tokens) / run.step_s;
    });
    const auto busy = compare(way, way, [&](const Trained& run, const Trained&) {
      return run.result.devices.empty() ? 1 : run.result.devices[0].busy_share;
    });
    const Bytes loaded = way.runs[0].result.h2d_bytes / static_cast<Bytes>(setting_.steps);
    print_row({way.name, way.link, way.double_buffer, text_of(tokens, 0), speed_of(way, kVnByVn),
               speed_of(way, kShardByShard), speed_of(way, kNoRecompute), percent(busy),
               fixed(static_cast<double>(loaded) / 1_MiB, 1)});
  }
}

/// A row compares the two ways over one link: with double buffer and, behind it, without.
void Comparison::print_links() const {
  print_head({"link", "MB/s", "copy of a shard, ms", "copies hidden, %", "without double buffer, %",
              "loads hidden, %", "simulated, %", "by wall time, %"});
  for (std::size_t i = kSpilled + 1; i < ways_.size(); i += 2) {
    const Way &on = ways_[i], &off = ways_[i + 1];
    const double rate = on.link_bytes_per_s;
    const auto copies = [](const Trained& run, const Trained&) {
      return run.result.copy_hidden_share.value_or(1);
    };
    const auto loads = [&](const Trained& run, const Trained&) {
      return loads_hidden_share(run.result, rate);
    };
    const auto simulated = [&](const Trained& run, const Trained&) {
      return loads_hidden_share(run.simulated, rate);
    };
    const auto load_s = [&](const Trained& run) {
      return static_cast<double>(run.result.h2d_bytes) / rate / setting_.steps;
    };
    const auto by_wall = [&](const Trained& with, const Trained& without) {
      return (without.step_s - with.step_s) / load_s(with);
    };
    const bool is_slow = load_s(on.runs[0]) > 0.1 * on.runs[0].step_s;
    print_row({on.link, fixed(rate / 1e6, 0), fixed(1e3 * shard_bytes_ / rate, 1),
               percent(compare(on, off, copies)), percent(compare(off, on, copies)),
               percent(compare(on, off, loads)), percent(compare(on, off, simulated)),
               is_slow ? percent(compare(on, off, by_wall)) : ""});
  }
}

void Comparison::print() const {
  check_bits();
  print_setting();
  std::printf("\n## Speed\n\n");
  print_speeds();
  std::printf("\n## Copies over a link\n\n");
  print_links();
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  using namespace spillway::experiments;
  const bool brief = argc > 1 && std::string_view(argv[1]) == "--brief";
  Comparison comparison(brief ? Setting{6, 64, 4, 3, 1} : Setting{16, 256, 64, 5, 5});
  comparison.run();
  comparison.print();
  return 0;
}
