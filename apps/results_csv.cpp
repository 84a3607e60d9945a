#include "apps/format.h"
#include "apps/report.h"

namespace spillway {
namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted_text = "\"";
  for (const char c : text) quoted_text += c == '"' ? "\"\"" : std::string(1, c);
  return quoted_text + "\"";
}

std::string line(const std::vector<std::string>& cells) {
  std::string text;
  for (const auto& cell : cells) text += (&cell == &cells.front() ? "" : ",") + quoted(cell);
  return text + "\r\n";
}

std::string number(const std::optional<double>& value) {
  return value ? format_number(*value) : "";
}

}  // namespace

std::string results_csv(const std::vector<Trial>& trials, const RunResult& result) {
  std::vector<std::string> header{"trial"};
  for (const auto& [key, value] : trials.front().parameters) header.push_back(key);
  for (const char* column :
       {"state", "steps", "first_loss", "final_loss", "eval_loss", "tokens_per_s", "parameters",
        "num_shards", "virtual_nodes", "lanes", "order", "weights_xxh3", "reason"})
    header.emplace_back(column);
  std::string text = line(header);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const auto& t = result.trials[i];
    std::vector<std::string> row{t.name};
    for (const auto& [key, value] : trials[i].parameters) row.push_back(value);
    for (const auto& cell : {std::string(to_string(t.state)), std::to_string(t.steps),
                             number(t.first_loss), number(t.final_loss), number(t.eval_loss),
                             number(t.tokens_per_s), std::to_string(t.parameters),
                             std::to_string(t.num_shards), std::to_string(t.virtual_nodes),
                             std::to_string(t.lanes), t.order, t.weights_xxh3, t.reason})
      row.push_back(cell);
    text += line(row);
  }
  return text;
}

}  // namespace spillway
