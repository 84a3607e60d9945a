#include "apps/report/screen.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/report/progress_text.h"
#include "apps/report/trial_table.h"
#include "runs/log/trial_names.h"
#include "runs/text/format.h"
#include "runs/text/table.h"
#include "runs/text/terminal_text.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

bool has_ended(const TrialLog& trial) { return has_ended(trial.result.state); }

std::vector<std::size_t> running_trials(const RunLog& run) {
  std::vector<std::size_t> running;
  for (std::size_t t = 0; t < run.trials.size(); ++t) {
    if (run.trials[t].result.state == TrialState::running) running.push_back(t);
  }
  return running;
}

/// The time in which a trial takes its remaining steps at its recent speed.
std::string rest_text(const TrialLog& trial, std::optional<double> steps_per_s) {
  if (!steps_per_s) return "-";
  return format_duration(static_cast<double>(trial.max_steps - trial.result.steps) / *steps_per_s);
}

/// The last swept values are left out first.
Table table_of(const RunLog& run, const RecentSpeed& speed,
               const std::vector<std::size_t>& trials) {
  const auto keys = swept_keys(run);
  const auto titles = parameter_titles(keys);
  std::vector<Table::Column> columns{{"trial"}};
  for (int k = 0; k < static_cast<int>(titles.size()); ++k)
    columns.push_back({titles[at(k)], 4 + k});
  for (const Table::Column& column :
       {Table::Column{"step"}, {"loss", 1}, {"tokens/s", 2}, {"left", 3}})
    columns.push_back(column);
  Table table(std::move(columns));
  for (const std::size_t trial : trials) {
    const TrialLog& log = run.trials[trial];
    std::vector<std::string> row{short_name(run, trial)};
    for (auto& value : short_parameters(log, keys)) row.push_back(std::move(value));
    row.push_back(fmt::format("{}/{}", log.result.steps, log.max_steps));
    row.push_back(loss_text(log.result.final_loss));
    row.push_back(speed_text(run, speed, trial));
    row.push_back(rest_text(log, speed.steps_per_s(trial)));
    table.add(std::move(row));
  }
  return table;
}

/// The estimated time that is left; empty before the first step. After the last one, evaluations
/// and checkpoints take a while.
std::string rest_text(const RunLog& run) {
  const double share = share_done(run);
  if (share <= 0) return "";
  if (share >= 1)
    return std::ranges::all_of(run.trials, has_ended) ? "" : ", evaluating and saving";
  return ", " + format_duration((run.time_s - run.begin_s) * (1 - share) / share) + " left";
}

std::string total_line(const RunLog& run, bool stopping) {
  const auto ended = std::ranges::count_if(run.trials, has_ended);
  const std::string counts = fmt::format("{} of {} trials ended", ended, run.trials.size());
  if (stopping) return fmt::format("{}; {}", counts, stopping_text(run));
  return fmt::format("{}, {} done{}", counts, format_percent(share_done(run)), rest_text(run));
}

}  // namespace

double share_done(const RunLog& run) {
  double done = 0, all = 0;
  for (const auto& trial : run.trials) {
    const auto steps = static_cast<double>(trial.result.steps);
    done += steps * trial.compute_s_per_step;
    all += (has_ended(trial) ? steps : static_cast<double>(trial.max_steps)) *
           trial.compute_s_per_step;
  }
  return all > 0 ? done / all : 0;
}

std::vector<std::string> screen_lines(const RunLog& run, const RecentSpeed& speed,
                                      TerminalSize size, bool stopping) {
  auto shown = running_trials(run);
  const std::size_t num_running = shown.size();
  // Four rows for the titles, "and N more", the total, and the cursor.
  const auto room = static_cast<std::size_t>(std::max(size.rows - 4, 0));
  if (num_running > room + 1) shown.resize(room);
  const auto width = static_cast<std::size_t>(std::max(size.columns - 1, 0));
  std::vector<std::string> lines;
  if (!shown.empty()) lines = table_of(run, speed, shown).lines(width);
  if (shown.size() < num_running)
    lines.push_back(fmt::format("  and {} more", num_running - shown.size()));
  lines.push_back(total_line(run, stopping));
  for (auto& line : lines) line = cut_to_columns(line, width);
  return lines;
}

}  // namespace spillway
