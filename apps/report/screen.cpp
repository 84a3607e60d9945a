#include "apps/report/screen.h"

#include <fmt/format.h>

#include <algorithm>

#include "runs/text/format.h"
#include "runs/text/terminal_text.h"

namespace spillway {
namespace {

bool has_ended(const TrialLog& trial) { return has_ended(trial.result.state); }

std::vector<const TrialLog*> running_trials(const RunLog& run) {
  std::vector<const TrialLog*> running;
  for (const auto& trial : run.trials) {
    if (trial.result.state == TrialState::running) running.push_back(&trial);
  }
  return running;
}

std::string trial_line(const TrialLog& trial, std::size_t name_width) {
  const auto& result = trial.result;
  std::string line = fmt::format("{}  step {:{}}/{}", padded(result.name, name_width), result.steps,
                                 fmt::formatted_size("{}", trial.max_steps), trial.max_steps);
  if (result.final_loss)
    line += fmt::format("  loss {:.4f}  {} tokens/s", *result.final_loss,
                        format_count(result.tokens_per_s));
  return line;
}

/// The estimated time that is left; empty before the first step.
std::string rest_text(const RunLog& run) {
  const double share = share_done(run);
  if (share <= 0) return "";
  return ", " + format_duration((run.time_s - run.begin_s) * (1 - share) / share) + " left";
}

std::string total_line(const RunLog& run) {
  const auto ended = std::ranges::count_if(run.trials, has_ended);
  return fmt::format("{} of {} trials ended, {} done{}", ended, run.trials.size(),
                     format_percent(share_done(run)), rest_text(run));
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

std::vector<std::string> screen_lines(const RunLog& run, TerminalSize size) {
  const auto running = running_trials(run);
  // Three rows for "and N more", the total, and the cursor.
  const auto room = static_cast<std::size_t>(std::max(size.rows - 3, 0));
  const auto num_shown = running.size() <= room + 1 ? running.size() : room;
  std::size_t name_width = 0;
  for (std::size_t i = 0; i < num_shown; ++i)
    name_width = std::max(name_width, columns_of(running[i]->result.name));
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < num_shown; ++i) lines.push_back(trial_line(*running[i], name_width));
  if (num_shown < running.size())
    lines.push_back(fmt::format("and {} more", running.size() - num_shown));
  lines.push_back(total_line(run));
  for (auto& line : lines) line = cut_to_columns(line, static_cast<std::size_t>(size.columns - 1));
  return lines;
}

}  // namespace spillway
