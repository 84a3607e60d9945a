#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/support/spread.h"
#include "models/pictures/cnn.h"
#include "models/text/rnn.h"
#include "scheduler/plan/placement.h"
#include "scheduler/search/moves.h"
#include "scheduler/search/strategy_search.h"
#include "scheduler/simulation/step_cost.h"
#include "trainer/profile/estimate.h"

/// What searches find in spaces that are small enough to estimate every strategy.
namespace spillway::experiments {
namespace {

constexpr int kNodes = 4, kSeeds = 10, kProposals = 2000;
constexpr double kFlops = 5e9, kMemory = 2e9, kLink = 20e6;  // of a device, a second
constexpr std::size_t kChosenFrom = 32;  // as in a search, the engine has the last word on these

/// A network on equal devices behind equal links, with room for everything.
class Problem {
 public:
  Problem(std::unique_ptr<Model> model, int devices)
      : model_(std::move(model)),
        profile_{.layers = estimate_layers(model_->spec, kFlops, kMemory)},
        shape_{.virtual_nodes = kNodes,
               .groups = kNodes,
               .lane_groups = {kNodes},
               .max_steps = kPricedSteps},
        costs_{.copy_bytes_per_s = kLink} {
    std::vector<double> cost_s;
    for (const LayerProfile& layer : profile_.layers) {
      cost_s.push_back(layer.forward_s + layer.backward_s);
    }
    engine_.device_budgets.assign(at(devices), 4_GiB);
    engine_.host_budget = 64_GiB;
    engine_.policy = make_policy("fifo");
    space_ = std::make_unique<SearchSpace>(SearchSpace{.model = model_->spec,
                                                       .layers = whole_layers(model_->spec, cost_s),
                                                       .devices = devices,
                                                       .groups = kNodes,
                                                       .virtual_nodes = kNodes,
                                                       .budget = 4_GiB});
    estimator_ = std::make_unique<StepEstimator>(model_->spec, profile_, shape_, engine_, costs_);
  }

  const SearchSpace& space() const { return *space_; }
  std::optional<StepCost> price(const StrategyConfig& strategy) const {
    const Strategy placed = spillway::placed(strategy, model_->spec, kNodes);
    auto plan = std::make_shared<JobPlan>(lower(model_->spec, profile_, shape_, placed));
    for (int t = 0; t < placed.tracks; ++t) plan->track_devices.emplace_back(t);
    return step_cost(plan, engine_, costs_);
  }
  double price_s(const Draft& draft) const {
    return price(to_config(draft, space().layers))->step_s;
  }
  double estimate_s(const Draft& draft) const {
    return estimator_->estimate(to_strategy(draft, space().layers, model_->spec, kNodes))->step_s;
  }
  SearchResult search(std::uint64_t seed, int proposals) const {
    return search_strategy(
        space(), [&](const StrategyConfig& strategy) { return price(strategy); },
        {.proposals = proposals, .seed = seed},
        [&](const Strategy& strategy, double most_s) {
          return estimator_->estimate(strategy, most_s);
        });
  }

 private:
  std::unique_ptr<Model> model_;
  Profile profile_;
  JobShape shape_;
  VirtualCosts costs_;
  EngineConfig engine_;
  std::unique_ptr<SearchSpace> space_;
  std::unique_ptr<StepEstimator> estimator_;
};

/// All strategies that give each range of layers one grid of consecutive devices.
class Enumeration {
 public:
  /// The layers are divided into as many ranges as there can be with at most `most` strategies.
  Enumeration(const Problem& problem, double most)
      : problem_(problem), moves_(problem.space(), draws_), grids_(moves_.all_grids()) {
    const auto grids = static_cast<double>(grids_.size());
    const auto fit = static_cast<std::size_t>(std::log(most) / std::log(grids) + 1e-9);
    ranges_ = std::min(fit, num_layers());
  }

  std::size_t num_layers() const { return problem_.space().layers.size(); }
  std::size_t num_ranges() const { return ranges_; }
  double size() const {
    return std::pow(static_cast<double>(grids_.size()), static_cast<double>(ranges_));
  }
  /// The time of the best one, each tried with stages of different lengths.
  double least_s() const {
    std::vector<std::pair<double, Draft>> best;
    std::vector<std::size_t> digits(ranges_);
    for (bool is_left = true; is_left; is_left = count(digits)) {
      for (Draft& draft : moves_.all_stages(this->draft(digits))) {
        best.emplace_back(problem_.estimate_s(draft), std::move(draft));
      }
      if (best.size() >= 2 * kChosenFrom) keep_best(best);
    }
    keep_best(best);
    double least_s = problem_.price_s(best.front().second);
    for (const auto& [step_s, draft] : best) least_s = std::min(least_s, problem_.price_s(draft));
    return least_s;
  }

 private:
  static void keep_best(std::vector<std::pair<double, Draft>>& drafts) {
    std::ranges::sort(drafts);
    drafts.resize(std::min(drafts.size(), kChosenFrom));
  }
  /// False after the last one.
  bool count(std::vector<std::size_t>& digits) const {
    for (std::size_t& digit : digits) {
      if (++digit < grids_.size()) return true;
      digit = 0;
    }
    return false;
  }
  Draft draft(const std::vector<std::size_t>& digits) const {
    Draft draft = everywhere({}, problem_.space().layers, kNodes);
    for (std::size_t l = 0; l < num_layers(); ++l) {
      const std::size_t range = l * ranges_ / num_layers();
      draft.grids[l] = grid_for(problem_.space().layers[l], grids_[digits[range]], kNodes);
    }
    return draft;
  }

  const Problem& problem_;
  Draws draws_{1};
  Moves moves_;
  std::vector<Grid> grids_;
  std::size_t ranges_ = 1;
};

void print_case(const std::string& name, std::unique_ptr<Model> model, int devices, bool brief) {
  const Problem problem(std::move(model), devices);
  const Enumeration all(problem, brief ? 300 : 300'000);
  const double least_s = all.least_s();
  std::vector<double> ratios;
  int found = 0;
  double known_s = std::numeric_limits<double>::infinity();
  for (std::uint64_t seed = 1; seed <= (brief ? 2 : kSeeds); ++seed) {
    const SearchResult result = problem.search(seed, brief ? 100 : kProposals);
    ratios.push_back(result.best.cost->step_s / least_s);
    found += ratios.back() < 1 + 1e-9 ? 1 : 0;
    for (const PricedStrategy& known : result.known) {
      if (known.cost) known_s = std::min(known_s, known.cost->step_s);
    }
  }
  const auto times = spread_of(ratios);
  print_row({name, std::to_string(devices), std::to_string(all.num_layers()),
             std::to_string(all.num_ranges()), fixed(all.size(), 0), fixed(1e3 * least_s, 1),
             fixed(1e3 * known_s, 1),
             std::to_string(found) + " of " + std::to_string(ratios.size()), fixed(times.median, 3),
             fixed(std::ranges::max(ratios), 3)});
  std::fflush(stdout);
}

std::unique_ptr<Model> lenet(int pieces) {
  CnnConfig config{
      .preset = CnnPreset::lenet, .num_channels = 1, .image_size = 28, .num_classes = 10};
  config.pieces.channels = pieces;
  return make_cnn(config, /*vn_size=*/16);
}

std::unique_ptr<Model> rnnlm(int pieces) {
  RnnConfig config{.preset = RnnPreset::rnnlm,
                   .vocab_size = 2048,
                   .max_position_embeddings = 2,
                   .hidden_size = 128,
                   .num_hidden_layers = 1,
                   .chunk_steps = 1};
  config.pieces.vocabulary = pieces;
  return make_rnn(config, /*vn_size=*/16);
}

void run(bool brief) {
  print_head({"model", "devices", "layers", "ranges", "strategies", "best of all, ms",
              "best known, ms", "found by seeds", "found / best", "worst"});
  for (int devices : {2, 4}) {
    print_case("LeNet", lenet(devices), devices, brief);
    print_case("RNNLM, 2 steps", rnnlm(devices), devices, brief);
  }
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  spillway::experiments::run(argc > 1 && std::string_view(argv[1]) == "--brief");
}
