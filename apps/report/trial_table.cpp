#include "apps/report/trial_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runs/log/trial_names.h"
#include "runs/output/ranking.h"
#include "runs/text/format.h"
#include "spillway/ids.h"
#include "spillway/units.h"

namespace spillway {
namespace {

bool has_clones(const RunLog& run) {
  return std::ranges::any_of(run.trials, [](const TrialLog& t) { return t.clone_of.has_value(); });
}

/// In a narrow terminal the metric stays longest, then the swept values.
std::vector<Table::Column> columns_of(const RunLog& run, const std::vector<std::string>& keys) {
  const auto titles = parameter_titles(keys);
  const int num_swept = static_cast<int>(titles.size());
  const auto after_swept = [&](int place) { return 1 + num_swept + place; };
  const auto place_of = [&](const std::string& metric) {
    return metric == to_string(run.metric.name) ? 0 : after_swept(2);
  };
  std::vector<Table::Column> columns{{"trial"}};
  for (int k = 0; k < num_swept; ++k) columns.push_back({titles[at(k)], 2 + k});
  columns.push_back({"state", 1});
  columns.push_back({"steps", after_swept(1)});
  columns.push_back({"first loss", after_swept(3)});
  columns.push_back({"final loss", place_of("final_loss")});
  columns.push_back({"eval loss", place_of("eval_loss")});
  for (const auto& name : metric_names(run)) columns.push_back({name, place_of(name)});
  columns.push_back({"parameters", after_swept(5)});
  columns.push_back({"state bytes", after_swept(6)});
  columns.push_back({"shards", after_swept(7)});
  columns.push_back({"order", after_swept(8)});
  columns.push_back({"tokens/s", after_swept(4)});
  if (has_clones(run)) columns.push_back({"clone of", after_swept(9)});
  if (run.trials.size() > 1) columns.push_back({"name", after_swept(10)});
  return columns;
}

std::vector<std::string> row_of(const RunLog& run, std::size_t trial,
                                const std::vector<std::string>& keys) {
  const TrialResult& t = run.trials[trial].result;
  std::vector<std::string> row{short_name(run, trial)};
  for (auto& value : short_parameters(run.trials[trial], keys)) row.push_back(std::move(value));
  for (auto& cell : {std::string(to_string(t.state)), fmt::to_string(t.steps),
                     loss_text(t.first_loss), loss_text(t.final_loss), loss_text(t.eval_loss)})
    row.push_back(cell);
  for (const auto& name : metric_names(run)) row.push_back(loss_text(metric_in(t.metrics, name)));
  for (auto& cell :
       {format_count(static_cast<double>(t.parameters)), format_bytes(t.training_state_bytes),
        fmt::to_string(t.num_shards), t.order, format_count(t.tokens_per_s)})
    row.push_back(cell);
  const auto& source = run.trials[trial].clone_of;
  if (has_clones(run)) row.push_back(source ? short_name(run, *source) : "-");
  if (run.trials.size() > 1) row.push_back(t.name);
  return row;
}

}  // namespace

std::string loss_text(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "-";
}

Table trial_table(const RunLog& run, const std::vector<std::size_t>& trials) {
  const auto keys = swept_keys(run);
  Table table(columns_of(run, keys));
  for (const std::size_t trial : trials) table.add(row_of(run, trial, keys));
  return table;
}

}  // namespace spillway
