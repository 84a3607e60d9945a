#include "apps/plan/remedies.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "apps/plan/planned_times.h"
#include "apps/plan/with_pieces.h"
#include "core/os/file_system.h"
#include "trainer/config/batch_split.h"

namespace spillway {
namespace {

using Overrides = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

/// A plan of a thousand trials takes long.
constexpr int kMostPlans = 12;
constexpr std::chrono::seconds kLongest{60};
/// Seconds that a virtual node may take: a pilot passes through some of its layers several times.
constexpr double kLongestPass = 10;
/// A layer in so much memory is measured in seconds.
constexpr Bytes kSmallLayer = 2_GiB;
/// A pair is not tried if its parts alone leave more than this times the limit.
constexpr double kHopeless = 1.5;

/// A size that is at least `bytes`, as people write it.
std::string size_text(Bytes bytes) {
  constexpr Bytes kExact = 64_MiB;
  return bytes < kExact ? fmt::format("{}KiB", round_up(bytes, 1_KiB) / 1_KiB)
                        : fmt::format("{}MiB", round_up(bytes, 1_MiB) / 1_MiB);
}

/// The most that is not above `bytes`.
std::string size_text_below(Bytes bytes) { return fmt::format("{}KiB", bytes / 1_KiB); }

/// Lanes need as many groups.
int lanes_of(const TrainConfig& train) {
  return std::max({1, train.data_parallel, train.most_devices()});
}

/// Of a key that both set, the first value counts.
Overrides both(Overrides first, const Overrides& second) {
  const auto key = [](const std::string& text) { return text.substr(0, text.find('=')); };
  for (const std::string& each : second) {
    if (std::ranges::find(first, key(each), key) == first.end()) first.push_back(each);
  }
  return first;
}

bool changes_bits(const Overrides& overrides) {
  return std::ranges::any_of(overrides, [](const auto& text) {
    return text.starts_with("train.") || text.starts_with("model.");
  });
}

/// Training state in files on the disk of the outputs.
std::string offload(const RunConfig& config) {
  return "offload_path=" + existing_part(config.output_dir).string();
}

/// What the run lacks: of one trial, or of the machine.
struct Lack {
  Tier tier = Tier::device;
  Bytes needed = 0, limit = 0;
  bool of_machine = false;
};

Lack lack_of(const PlannedRun& run) {
  if (const PlannedRow* row = run.largest_misfit())
    return {row->misfit->tier, row->misfit->needed, row->misfit->budget};
  if (!run.fits_memory()) return {Tier::host, run.memory.total(), run.machine.total, true};
  for (const DiskUse& disk : run.disks) {
    if (!disk.fits()) return {Tier::disk, disk.required(), disk.free, true};
  }
  return {};
}

/// The number of the trial that does not fit and needs most, or that has the largest home.
std::size_t worst_trial(const PlannedRun& run) {
  const auto needed = [](const PlannedRow& row) {
    return std::pair(row.misfit ? row.misfit->needed : 0, row.plan.home_bytes);
  };
  return static_cast<std::size_t>(std::ranges::max_element(run.rows, {}, needed) -
                                  run.rows.begin());
}

/// Single changes that may help.
class Changes {
 public:
  Changes(const PlannedRun& run, const Lack& lack)
      : run_(run), lack_(lack), train_(run.rows[worst_trial(run)].train) {}

  std::vector<Overrides> all() {
    if (lack_.of_machine && lack_.tier == Tier::disk) {
      fewer_checkpoints();
      return std::exchange(changes_, {});
    }
    if (lack_.of_machine) {
      fewer_at_once();
      smaller_devices();
      to_disk();
    }
    fewer_groups();
    if (lack_.tier == Tier::device) more_pieces();
    if (train_.gradient_dtype == FloatType::fp32) changes_.push_back({"train.gradient_dtype=bf16"});
    if (train_.dtype == FloatType::fp32) changes_.push_back({"train.dtype=bf16"});
    if (lack_.tier == Tier::host && !lack_.of_machine && run_.config().session.double_buffer)
      changes_.push_back({"scheduling.double_buffer=false"});
    return std::exchange(changes_, {});
  }

  /// Larger numbers of virtual nodes in as many groups, ascending.
  std::vector<Overrides> smaller_virtual_nodes() const {
    std::vector<Overrides> all;
    TrainConfig train = train_;
    train.reduction_groups = 0;
    constexpr std::int64_t kMost = 1 << 16;
    const auto most = static_cast<int>(std::min(train.batch_size, kMost));
    while (++train.virtual_nodes <= most) {
      if (train.batch_size % train.virtual_nodes != 0) continue;
      if (train.virtual_nodes % train_.reduction_groups != 0) continue;
      all.push_back({fmt::format("train.virtual_nodes={}", train.virtual_nodes)});
      if (reduction_groups_of(train) != train_.reduction_groups)
        all.back().push_back(fmt::format("train.reduction_groups={}", train_.reduction_groups));
    }
    return all;
  }

 private:
  void fewer_groups() {
    for (int groups = lanes_of(train_); groups < train_.reduction_groups; ++groups) {
      if (train_.virtual_nodes % groups != 0) continue;
      changes_.push_back({fmt::format("train.reduction_groups={}", groups)});
      return;
    }
  }

  /// Smaller layers. Their number depends on what they divide.
  void more_pieces() {
    constexpr std::int64_t kMost = 8;
    const RunConfig& config = run_.config();
    if (config.gpt.pieces != GptPieces{} || config.mlp.pieces != MlpPieces{} ||
        config.cnn.pieces != CnnPieces{} || config.rnn.pieces != RnnPieces{} ||
        config.torch.pieces != TorchPieces{}) {
      return;
    }
    for (Overrides& divided : with_pieces(config, kMost)) changes_.push_back(std::move(divided));
  }

  void fewer_checkpoints() {
    for (const int keep : {1, 0}) {
      if (run_.config().checkpoint.keep > keep)
        changes_.push_back({fmt::format("checkpoint.keep={}", keep)});
    }
  }

  void to_disk() {
    if (run_.config().session.offload_path.empty()) changes_.push_back({offload(run_.config())});
  }

  void fewer_at_once() {
    const Bytes devices = run_.memory.total() - run_.memory.homes;
    if (run_.rows.size() > 1 && devices < run_.machine.total)
      changes_.push_back({"host_memory=" + size_text_below(run_.machine.total - devices)});
  }

  void smaller_devices() {
    Bytes least = 0;
    for (const PlannedRow& row : run_.rows) least = std::max(least, row.plan.smallest_budget_bytes);
    Overrides smaller;
    const auto& devices = run_.config().session.devices;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      if (run_.memory.devices[d] > least)
        smaller.push_back(fmt::format("devices[{}].memory={}", d, size_text(least)));
    }
    if (!smaller.empty()) changes_.push_back(std::move(smaller));
  }

  const PlannedRun& run_;
  const Lack lack_;
  const TrainConfig& train_;
  std::vector<Overrides> changes_;
};

/// Plans the run with changes and notes which of them help.
class RemedySearch {
 public:
  RemedySearch(const PlanInput& input, const PlannedRun& run)
      : input_(input), run_(run), lack_(lack_of(run)), worst_(worst_trial(run)) {}

  Advice find() {
    raise_budgets();
    for (const Overrides& change : Changes(run_, lack_).all()) note(change, attempt(change));
    if (lack_.tier == Tier::device) shrink_virtual_nodes();
    combine();
    const auto speed = [](const Remedy& remedy) {  // differences of a few percent are noise
      return std::lround(std::log(std::max(remedy.step_s, 1e-9)) * 20);
    };
    std::ranges::stable_sort(advice_.remedies, {}, speed);
    return std::move(advice_);
  }

 private:
  const SessionConfig& session_config() const { return run_.config().session; }

  /// What a plan with changes says.
  struct Outcome {
    std::optional<Remedy> remedy;  ///< it fits
    Lack lack;                     ///< else, if the changes are valid at all
    bool valid = true;
  };

  Outcome attempt(const Overrides& overrides) {
    if (plans_ == kMostPlans || Clock::now() > end_) {
      advice_.is_complete = false;
      return {.valid = false};
    }
    ++plans_;
    PlanInput input = input_;
    input.overrides.insert(input.overrides.end(), overrides.begin(), overrides.end());
    try {
      if (auto rejected = reject_by_estimate(input)) return *std::move(rejected);
      if (run_.rows.size() > 1) {  // the trial that needs most decides soonest
        const PlannedRun one = plan_run(input, worst_);
        if (one.largest_misfit()) return {.lack = lack_of(one)};
      }
      return outcome_of(plan_run(input), overrides);
    } catch (const Error&) {
      return {.valid = false};
    }
  }

  /// Nothing is measured for what cannot fit, or would take long: costs are right within a factor
  /// of two.
  std::optional<Outcome> reject_by_estimate(PlanInput input) {
    if (input.estimate) return std::nullopt;
    input.estimate = true;
    const PlannedRun estimated = plan_run(input, worst_);
    const Lack lack = lack_of(estimated);
    const bool is_exact = lack.tier != Tier::device;
    if (!estimated.fits() && lack.needed > (is_exact ? 1 : 2) * lack.limit)
      return Outcome{.lack = lack};
    const PlannedRow& row = estimated.rows.front();
    const Bytes largest = std::max(kSmallLayer, 2 * lack_.limit);  // the plan was ready to measure
    if (row.plan.compute_s_per_step <= kLongestPass * row.train.virtual_nodes &&
        row.plan.smallest_budget_bytes <= largest)
      return std::nullopt;
    advice_.is_complete = false;
    return Outcome{.valid = false};
  }

  Outcome outcome_of(PlannedRun run, const Overrides& overrides) const {
    if (!run.fits()) return {.lack = lack_of(run)};
    const RunResult result = run.simulate(kQuickOps);
    return {.remedy = Remedy{.overrides = overrides,
                             .changes_bits = changes_bits(overrides),
                             .needs = tiers_of(run.rows.at(worst_), run.config()),
                             .step_s = times_of(run, result).step_s}};
  }

  void note(const Overrides& overrides, Outcome outcome) {
    if (outcome.remedy) return advice_.remedies.push_back(std::move(*outcome.remedy));
    if (!outcome.valid) return;
    advice_.useless.push_back(fmt::format("{}", fmt::join(overrides, " ")));
    const bool is_less = outcome.lack.tier == lack_.tier && outcome.lack.needed < lack_.needed &&
                         outcome.lack.of_machine == lack_.of_machine;
    if (is_less) helpful_.push_back({overrides, outcome.lack.needed});
  }

  /// The override that gives a trial what it lacks.
  Overrides raised(const Lack& lack) const {
    if (lack.tier == Tier::host) return {"host_memory=" + size_text(lack.needed)};
    const auto& devices = session_config().devices;
    std::vector<std::size_t> largest(devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) largest[d] = d;
    std::ranges::stable_sort(largest, std::greater(), [&](auto d) { return devices[d].memory; });
    const auto lanes = static_cast<std::size_t>(std::max(1, run_.rows[worst_].train.data_parallel));
    largest.resize(std::min(lanes, largest.size()));
    Overrides overrides;
    for (const std::size_t d : largest) {
      if (devices[d].memory < lack.needed)
        overrides.push_back(fmt::format("devices[{}].memory={}", d, size_text(lack.needed)));
    }
    return overrides;
  }

  /// More memory of one tier may show that another lacks some. The machine's cannot be raised.
  void raise_budgets() {
    if (lack_.of_machine) return;
    constexpr int kMostRaises = 3;
    std::map<Tier, Overrides> raises;
    Overrides overrides;
    Outcome outcome{.lack = lack_};
    for (int i = 0; i < kMostRaises && !outcome.remedy && outcome.valid; ++i) {
      const bool in_files = raises.contains(Tier::disk) || !session_config().offload_path.empty();
      if (outcome.lack.tier == Tier::disk || (outcome.lack.of_machine && in_files)) break;
      if (outcome.lack.of_machine) {
        raises[Tier::disk] = {offload(run_.config())};
      } else {
        raises[outcome.lack.tier] = raised(outcome.lack);
      }
      overrides.clear();
      for (const auto& [tier, of_tier] : raises)
        overrides.insert(overrides.end(), of_tier.begin(), of_tier.end());
      outcome = attempt(overrides);
    }
    if (!overrides.empty()) note(overrides, std::move(outcome));
  }

  /// Notes the largest virtual nodes that help, or the smallest that do not.
  void shrink_virtual_nodes() {
    auto sizes = Changes(run_, lack_).smaller_virtual_nodes();
    if (sizes.empty()) return;
    Outcome smallest = attempt(sizes.back());
    while (!smallest.valid && sizes.size() > 1) {  // batch norm needs two samples
      sizes.pop_back();
      smallest = attempt(sizes.back());
    }
    Overrides best = sizes.back();
    std::size_t low = 0, high = sizes.size() - 1;
    while (smallest.remedy && low < high) {
      const std::size_t middle = (low + high) / 2;
      Outcome larger = attempt(sizes[middle]);
      if (larger.remedy) {
        smallest = std::move(larger);
        best = sizes[high = middle];
      } else {
        low = middle + 1;
      }
    }
    note(best, std::move(smallest));
  }

  /// Pairs of changes that each help a little, the most promising first.
  void combine() {
    std::vector<std::pair<double, Overrides>> pairs;
    const auto limit = static_cast<double>(lack_.limit);
    for (std::size_t b = 0; b < helpful_.size(); ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        const double needed = static_cast<double>(helpful_[a].needed) *
                              static_cast<double>(helpful_[b].needed) /
                              static_cast<double>(lack_.needed);
        if (needed > kHopeless * limit) continue;
        Overrides pair = both(helpful_[a].overrides, helpful_[b].overrides);
        // One may be part of the other.
        if (pair == helpful_[a].overrides || pair == helpful_[b].overrides) continue;
        pairs.emplace_back(needed, std::move(pair));
      }
    }
    std::ranges::stable_sort(pairs, {}, &std::pair<double, Overrides>::first);
    helpful_.clear();
    for (const auto& [needed, pair] : pairs) note(pair, attempt(pair));
  }

  struct Helpful {
    Overrides overrides;
    Bytes needed = 0;
  };

  const PlanInput& input_;
  const PlannedRun& run_;
  const Lack lack_;
  const std::size_t worst_;
  const Clock::time_point end_ = Clock::now() + kLongest;
  int plans_ = 0;
  std::vector<Helpful> helpful_;  ///< not enough alone
  Advice advice_;
};

}  // namespace

Advice find_remedies(const PlanInput& input, const PlannedRun& run) {
  return RemedySearch(input, run).find();
}

}  // namespace spillway
