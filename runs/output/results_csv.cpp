#include <fmt/format.h>

#include "runs/log/trial_names.h"
#include "runs/output/ranking.h"
#include "runs/output/run_documents.h"
#include "runs/text/csv.h"

namespace spillway {

std::string results_csv(const RunLog& run) {
  std::vector<std::string> header{"trial"};
  const std::vector<std::string> keys = swept_keys(run);
  header.insert(header.end(), keys.begin(), keys.end());
  for (const char* column : {"state", "steps", "first_loss", "final_loss", "eval_loss"})
    header.emplace_back(column);
  const std::vector<std::string> metrics = metric_names(run);
  header.insert(header.end(), metrics.begin(), metrics.end());
  for (const char* column : {"tokens_per_s", "parameters", "num_shards", "virtual_nodes",
                             "data_parallel", "order", "weights_xxh3", "reason"})
    header.emplace_back(column);
  std::string text = csv_line(header);
  for (const auto& trial : run.trials) {
    const auto& t = trial.result;
    std::vector<std::string> row{t.name};
    for (const std::string& key : keys) {
      const std::string* value = parameter_of(trial, key);
      row.push_back(value == nullptr ? "" : *value);
    }
    for (const auto& cell : {std::string(to_string(t.state)), fmt::to_string(t.steps),
                             csv_cell(t.first_loss), csv_cell(t.final_loss), csv_cell(t.eval_loss)})
      row.push_back(cell);
    for (const std::string& name : metrics) row.push_back(csv_cell(metric_in(t.metrics, name)));
    for (const auto& cell : {csv_cell(t.tokens_per_s), fmt::to_string(t.parameters),
                             fmt::to_string(t.num_shards), fmt::to_string(t.virtual_nodes),
                             fmt::to_string(t.lanes), t.order, t.weights_xxh3, t.reason})
      row.push_back(cell);
    text += csv_line(row);
  }
  return text;
}

}  // namespace spillway
