#include "scheduler/search/strategy_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/search/moves.h"
#include "scheduler/search/starts.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double seconds(const std::optional<StepCost>& cost) { return cost ? cost->step_s : kNever; }

class Search {
 public:
  Search(const SearchSpace& space, const PriceStrategy& price, const SearchConfig& config,
         const EstimateStrategy& estimate, const SearchThreads& threads)
      : space_(space),
        price_(price),
        estimate_(estimate),
        threads_(threads),
        config_(config),
        draws_(config.seed),
        moves_(space, draws_) {}

  SearchResult run() && {
    std::vector<Draft> starts;
    auto known = known_drafts(space_.layers, space_.devices, space_.groups);
    for (auto& [name, draft] : known) draft = with_best_stages(draft);
    std::vector<const Draft*> known_ones;
    for (const auto& [name, draft] : known) known_ones.push_back(&draft);
    price_all(known_ones);
    for (auto& [name, draft] : known) {
      const std::optional<StepCost> cost = price(draft);
      result_.known.push_back({name, to_config(draft, space_.layers), 1, cost});
      seconds_of(draft);
      starts.push_back(std::move(draft));
    }
    if (space_.given) {
      result_.known.push_back({"train.strategy", space_.given, 1, price_(*space_.given)});
      auto draft = to_draft(*space_.given, space_.layers, space_.model, space_.groups);
      if (draft) {
        seconds_of(*draft);
        starts.push_back(std::move(*draft));
      }
    }
    if (is_tight_) {
      moves_.save_memory();
      add_spilled(starts);
    }
    std::erase_if(starts, [&](const Draft& draft) {
      return seconds_of(draft) == kNever || !price(draft);  // the host may be too small
    });
    if (starts.empty()) {
      if (fastest_known().cost) result_.best = fastest_known();
      return std::move(result_);
    }
    std::ranges::stable_sort(starts, {}, [&](const Draft& draft) { return seconds_of(draft); });
    starts.resize(std::min(starts.size(), kChains));
    best_ = starts.front();
    for (const Draft& start : starts) {
      anneal(start, config_.proposals / 2 / static_cast<int>(starts.size()));
    }
    descend();
    while (has_proposals()) {  // anneal again, from the best
      anneal(best_, std::max(1, (config_.proposals - result_.simulated) / 2));
      descend();
    }
    choose();
    tidy();
    return std::move(*this).result();
  }

 private:
  static constexpr std::size_t kChains = 4, kChosenFrom = 32;

  /// Long stages have less overhead; with short ones, weights and gradient sums travel meanwhile. A
  /// draft that takes all virtual nodes through a stage at a time is also tried with one at a time.
  Draft with_best_stages(const Draft& draft) {
    std::vector<Draft> tried = moves_.all_stages(draft);
    if (draft.chunk == 0) {
      for (Draft one_by_one : std::vector(tried)) {
        one_by_one.chunk = 1;
        tried.push_back(std::move(one_by_one));
      }
    }
    Draft best = draft;
    double best_s = fitting_s(draft, kNever);
    if (estimate_ && best_s == kNever) is_tight_ = true;
    for (Draft& next : tried) {
      const double next_s = fitting_s(next, best_s);
      if (next_s >= best_s) continue;
      best = std::move(next);
      best_s = next_s;
    }
    return best;
  }

  /// The time of a step; kNever if something has no room. Without estimates, the engine's.
  double fitting_s(const Draft& draft, double most_s) {
    if (!estimate_) return seconds(price(draft));
    const auto found = estimate(draft, most_s);
    return found && found->fits ? found->step_s : kNever;
  }

  /// The same starts with weights in sets of a quarter of the budget, and one unit for all virtual
  /// nodes of a cell: each set is loaded twice in a step, while the set before it computes.
  void add_spilled(std::vector<Draft>& starts) const {
    constexpr Bytes kParts = 4;  // two sets, and their gradient sums
    for (Draft draft : std::vector(starts)) {
      draft.chunk = draft.window = 0;
      draft.set_bytes = space_.budget / kParts;
      starts.push_back(std::move(draft));
    }
  }

  /// A strategy that was simulated before costs no proposal, so tries are limited, too: a small
  /// space may have fewer strategies than there are proposals.
  bool has_proposals() const {
    constexpr int kMostRepeated = 10;
    return result_.simulated < config_.proposals && tried_ / kMostRepeated < config_.proposals;
  }

  std::optional<StepCost> price(const Draft& draft) {
    const auto [place, is_new] = prices_.try_emplace(draft);
    if (is_new) place->second = price_(to_config(draft, space_.layers));
    return place->second;
  }

  /// Prices drafts at the same time for which price() will ask.
  void price_all(const std::vector<const Draft*>& drafts) {
    std::vector<std::pair<const Draft, std::optional<StepCost>>*> unknown;
    for (const Draft* draft : drafts) {
      const auto [place, is_new] = prices_.try_emplace(*draft);
      if (is_new) unknown.push_back(&*place);
    }
    for_each(unknown,
             [&](auto* item) { item->second = price_(to_config(item->first, space_.layers)); });
  }

  template <typename Items, typename Work>
  void for_each(Items& items, const Work& work) const {
    const auto size = static_cast<int>(items.size());
    if (size > 1 && threads_.number > 1) {
      threads_.for_each(size, [&](int i) { work(items[at(i)]); });
    } else {
      for (auto& item : items) work(item);
    }
  }

  /// The time of a step, by the estimate if there is one. If the time exceeds `most_s`, the result
  /// is some number above `most_s` and not above the time.
  double seconds_of(const Draft& draft, double most_s = kNever) {
    const auto [place, is_new] = seconds_.try_emplace(draft);
    if (is_new) ++result_.simulated;
    Seconds& known = place->second;
    if (!known.is_known(most_s)) known = measured(draft, most_s);
    return known.least_s;
  }

  struct Seconds {
    double least_s = 0;
    bool is_exact = false;
    bool is_known(double most_s) const { return is_exact || least_s > most_s; }
  };
  struct Ahead {
    double most_s = 0;
    std::optional<StepEstimate> estimate;
  };

  std::optional<StepEstimate> estimate(const Draft& draft, double most_s) const {
    return estimate_(to_strategy(draft, space_.layers, space_.model, space_.groups), most_s);
  }

  /// A draft that may be tried soon.
  struct Proposal {
    Draft draft;
    double most_s = 0;  ///< the longest time that would be accepted
  };

  /// Estimates at the same time what seconds_of() is likely to be asked for next.
  void look_ahead(const std::vector<Proposal>& proposals) {
    ahead_.clear();
    if (!estimate_ || proposals.size() == 1) return;
    std::vector<std::pair<const Draft, Ahead>*> unknown;
    for (const auto& [draft, most_s] : proposals) {
      const auto found = seconds_.find(draft);
      if (found != seconds_.end() && found->second.is_known(most_s)) continue;
      const auto [place, is_new] = ahead_.try_emplace(draft, Ahead{most_s, {}});
      if (is_new) unknown.push_back(&*place);
    }
    for_each(unknown, [&](auto* item) {
      item->second.estimate = estimate(item->first, item->second.most_s);
    });
  }

  Seconds measured(const Draft& draft, double most_s) {
    if (!estimate_) return {seconds(price(draft)), true};
    const auto ahead = ahead_.find(draft);
    const bool is_ahead = ahead != ahead_.end() && ahead->second.most_s == most_s;
    const auto estimate = is_ahead ? ahead->second.estimate : this->estimate(draft, most_s);
    if (estimate && estimate->step_s > most_s) return {estimate->step_s, false};
    if (estimate && estimate->fits) return {estimate->step_s, true};
    is_tight_ = true;
    if (!estimate) return {kNever, true};
    // One price costs as much as many estimates.
    constexpr int kProposalsOfAPrice = 8;
    if (!prices_.contains(draft)) {
      if (priced_misfits_ * kProposalsOfAPrice > config_.proposals) return {kNever, true};
      ++priced_misfits_;
    }
    return {std::max(estimate->step_s, seconds(price(draft))), true};
  }

  /// The best by its price among the best by estimates. Of a rejected draft the search only knows
  /// that it takes longer.
  void choose() {
    std::vector<std::pair<double, const Draft*>> drafts;
    for (const auto& [draft, known] : seconds_) {
      if (known.is_exact && known.least_s < kNever) drafts.emplace_back(known.least_s, &draft);
    }
    std::ranges::sort(drafts, [](const auto& a, const auto& b) {
      return std::tie(a.first, *a.second) < std::tie(b.first, *b.second);
    });
    drafts.resize(std::min(drafts.size(), kChosenFrom));
    std::vector<const Draft*> chosen;
    for (const auto& [step_s, draft] : drafts) chosen.push_back(draft);
    price_all(chosen);
    for (const Draft* draft : chosen) {
      if (seconds(price(*draft)) < seconds(price(best_))) best_ = *draft;
    }
  }

  void keep(const Draft& draft, double step_s) {
    if (step_s < seconds_of(best_)) best_ = draft;
  }

  void anneal(Draft draft, int proposals) {
    constexpr double kFirstBeta = 30, kLastBeta = 500;
    double now_s = seconds_of(draft);
    const int begin = tried_, end = begin + proposals;
    const auto beta = [&](int tried) {
      const double done = static_cast<double>(tried - begin) / proposals;
      return kFirstBeta * std::pow(kLastBeta / kFirstBeta, done);
    };
    while (tried_ < end && has_proposals()) {
      std::vector<Proposal> next;  // each as if those before it were rejected
      std::vector<Draws> draws;    // after each
      for (int i = 0; i < threads_.number && tried_ + i < end; ++i) {
        Draft changed = moves_.change(draft);
        const double most_s = now_s * (1 - std::log(1 - draws_.unit()) / beta(tried_ + i));
        next.push_back({std::move(changed), most_s});
        draws.push_back(draws_);
      }
      look_ahead(next);
      for (std::size_t i = 0; i < next.size() && has_proposals(); ++i) {
        ++tried_;
        draws_ = draws[i];
        const double next_s = seconds_of(next[i].draft, next[i].most_s);
        if (next_s > next[i].most_s) continue;
        draft = std::move(next[i].draft);
        now_s = next_s;
        keep(draft, now_s);
        break;
      }
    }
  }

  /// Tries all changes of the best by one grid for a group, or of the order, until none helps.
  void descend() {
    const std::vector<Grid> grids = moves_.all_grids();
    const auto groups = moves_.all_groups();
    const auto with_grid = [&](std::size_t number) {
      Draft next = best_;
      for (std::size_t l : groups[number / grids.size()]) {
        next.grids[l] = grid_for(space_.layers[l], grids[number % grids.size()], space_.groups);
      }
      return next;
    };
    while (true) {
      const double before_s = seconds_of(best_);
      if (!try_all(groups.size() * grids.size(), with_grid)) return;
      const std::vector<Draft> orders = moves_.all_orders(best_);
      if (!try_all(orders.size(), [&](std::size_t number) { return orders[number]; })) return;
      if (seconds_of(best_) == before_s) return;
    }
  }

  /// Tries `change(0)` to `change(number - 1)`. False if there are no proposals left.
  template <typename Change>
  bool try_all(std::size_t number, const Change& change) {
    // Few changes are better. Threads that have several estimates each wait less for each other.
    const std::size_t most_ahead = threads_.number > 1 ? at(std::max(threads_.number, 8)) : 1;
    for (std::size_t tried = 0; tried < number;) {
      const double best_s = seconds_of(best_);
      std::vector<Proposal> next;  // each as if those before it were not better
      for (std::size_t i = tried; i < std::min(number, tried + most_ahead); ++i) {
        next.push_back({change(i), best_s});
      }
      look_ahead(next);
      for (std::size_t i = 0; i < next.size() && seconds_of(best_) == best_s; ++i, ++tried) {
        if (!has_proposals()) return false;
        tried_ += next[i].draft == best_ ? 0 : 1;
        keep(next[i].draft, seconds_of(next[i].draft, best_s));
      }
    }
    return true;
  }

  std::size_t num_placements(const Draft& draft) const {
    return to_config(draft, space_.layers).place.size();
  }

  /// Undoes changes that gain nothing, because people read and edit the strategy: a layer gets the
  /// grid of the layer before, or of an earlier one of its kind, unless that costs time.
  void tidy() {
    constexpr double kNoTime = 1e-3;
    const Draft found = best_;
    const double most_s = seconds_of(best_) * (1 + kNoTime);
    for (std::size_t l = 1; l < space_.layers.size(); ++l) {
      for (std::size_t from = l; from-- > 0;) {
        const bool is_like = from + 1 == l || space_.layers[from].kind == space_.layers[l].kind;
        if (!is_like) continue;
        Draft next = best_;
        next.grids[l] = grid_for(space_.layers[l], best_.grids[from], space_.groups);
        if (next == best_ || num_placements(next) > num_placements(best_)) continue;
        if (seconds_of(next, most_s) <= most_s) best_ = next;
      }
    }
    if (seconds(price(best_)) > seconds(price(found)) * (1 + kNoTime)) best_ = found;
  }

  SearchResult result() && {
    result_.best = {"found", to_config(best_, space_.layers), 1, price(best_)};
    const PricedStrategy& known = fastest_known();
    if (seconds(known.cost) <= seconds(result_.best.cost)) result_.best = known;
    return std::move(result_);
  }

  const PricedStrategy& fastest_known() const {
    return *std::ranges::min_element(result_.known, {},
                                     [](const PricedStrategy& each) { return seconds(each.cost); });
  }

  const SearchSpace& space_;
  const PriceStrategy& price_;
  const EstimateStrategy& estimate_;
  const SearchThreads& threads_;
  const SearchConfig config_;
  Draws draws_;
  Moves moves_;
  std::map<Draft, Seconds> seconds_;
  std::map<Draft, Ahead> ahead_;
  std::map<Draft, std::optional<StepCost>> prices_;
  Draft best_;
  int tried_ = 0;
  bool is_tight_ = false;   ///< not every strategy has room for everything
  int priced_misfits_ = 0;  ///< strategies without room that the engine has priced
  SearchResult result_;
};

}  // namespace

SearchResult search_strategy(const SearchSpace& space, const PriceStrategy& price,
                             const SearchConfig& config, const EstimateStrategy& estimate,
                             const SearchThreads& threads) {
  return Search(space, price, config, estimate, threads).run();
}

}  // namespace spillway
