#include "apps/page/page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "apps/page/trace_picture.h"
#include "runs/log/trial_names.h"
#include "runs/output/ranking.h"

namespace spillway {
namespace {

/// All curves of a page together.
constexpr std::size_t kMaxPoints = 200'000, kMaxPointsOfATrial = 500, kMinPointsOfATrial = 20;

/// The mean of every few steps, so that there are at most `max_points`.
Json curve_of(const std::vector<StepMetrics>& rows, std::optional<double> StepMetrics::*value,
              std::size_t max_points) {
  std::vector<std::pair<std::int64_t, double>> points;
  for (const StepMetrics& row : rows) {
    if (row.*value && std::isfinite(*(row.*value))) points.emplace_back(row.step, *(row.*value));
  }
  Json curve = Json::array();
  const std::size_t together =
      std::max<std::size_t>(1, (points.size() + max_points - 1) / max_points);
  for (std::size_t i = 0; i < points.size(); i += together) {
    const std::size_t end = std::min(points.size(), i + together);
    double sum = 0;
    for (std::size_t k = i; k < end; ++k) sum += points[k].second;
    curve.push_back({points[end - 1].first, sum / static_cast<double>(end - i)});
  }
  return curve;
}

Json trial_json(const PageInput& input, std::size_t trial, const std::vector<std::string>& keys,
                std::size_t max_points) {
  const TrialLog& log = input.run.trials[trial];
  Json values = Json::array();
  for (const std::string& key : keys) {
    const std::string* value = parameter_of(log, key);
    values.push_back(value == nullptr ? Json(nullptr) : value_of(*value));
  }
  return {{"id", short_name(input.run, trial)},
          {"clone_of", log.clone_of ? Json(short_name(input.run, *log.clone_of)) : Json(nullptr)},
          {"name", log.result.name},
          {"state", to_string(log.result.state)},
          {"ended", has_ended(log.result.state)},
          {"step", log.result.steps},
          {"steps", log.max_steps},
          {"last", or_null(log.result.final_loss)},
          {"metric", or_null(metric_of(input.run, trial))},
          {"values", std::move(values)},
          {"loss", curve_of(input.metrics[trial], &StepMetrics::loss, max_points)},
          {"eval", curve_of(input.metrics[trial], &StepMetrics::eval_loss, max_points)}};
}

Json best_json(const PageInput& input) {
  const auto best = best_trial(input.run);
  if (!best) return nullptr;
  return {{"id", short_name(input.run, *best)},
          {"folder", trial_folder(input.folder, input.run.trials[*best].result.name).string()},
          {"value", or_null(metric_of(input.run, *best))}};
}

/// That of the best trial with a strategy; null: there is none.
Json strategy_json(const RunLog& run, const std::vector<std::size_t>& ranked) {
  for (const std::size_t trial : ranked) {
    const TrialLog& log = run.trials[trial];
    if (log.placement.empty()) continue;
    return {{"id", short_name(run, trial)}, {"lines", placement_json(log.placement)}};
  }
  return nullptr;
}

}  // namespace

Json page_data(const PageInput& input) {
  const auto ranked = ranked_trials(input.run);
  const std::size_t max_points =
      std::clamp(kMaxPoints / ranked.size(), kMinPointsOfATrial, kMaxPointsOfATrial);
  const auto keys = swept_keys(input.run);
  Json trials = Json::array();
  std::map<std::string, std::size_t> places;
  for (const std::size_t trial : ranked) {
    places[input.run.trials[trial].result.name] = trials.size();
    trials.push_back(trial_json(input, trial, keys, max_points));
  }
  TracePicture picture = picture_of(input.trace, places);
  return {{"name", input.run.name},
          {"folder", input.folder},
          {"state", input.state},
          {"seconds", input.run.time_s - input.run.begin_s},
          {"metric", {{"name", to_string(input.run.metric.name)}}},
          {"best", best_json(input)},
          {"titles", parameter_titles(keys)},
          {"trials", std::move(trials)},
          {"strategy", strategy_json(input.run, ranked)},
          {"timeline", std::move(picture.timeline)},
          {"memory", std::move(picture.memory)}};
}

std::string html_page(const Json& data) {
  std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  // In JSON this character only stands in strings, where its escape means the same.
  for (std::size_t i = text.find('<'); i != text.npos; i = text.find('<', i))
    text.replace(i, 1, "\\u003c");
  std::string page = kPageTemplate;
  constexpr std::string_view kPlace = "%DATA%";
  return page.replace(page.find(kPlace), kPlace.size(), text);
}

}  // namespace spillway
