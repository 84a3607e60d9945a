#include "apps/report/progress_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "apps/report/trial_table.h"
#include "runs/log/trial_names.h"
#include "runs/text/format.h"

namespace spillway {
namespace {

/// The time and the trial, which begin a line.
std::string line_head(const RunLog& run, std::size_t trial) {
  return fmt::format("{:7.1f} s  {}", run.time_s, short_name(run, trial));
}

/// Whether a run that stops has yet to write a checkpoint of the trial.
bool is_unsaved(const TrialLog& trial) {
  const bool has_checkpoints = trial.checkpoint_bytes > 0;
  return has_checkpoints && !has_ended(trial.result.state) && trial.result.steps > 0 &&
         (!trial.saved || trial.saved->step < trial.result.steps);
}

}  // namespace

std::string speed_text(const RunLog& run, const RecentSpeed& speed, std::size_t trial) {
  const auto steps_per_s = speed.steps_per_s(trial);
  const auto tokens = static_cast<double>(run.trials[trial].tokens_per_step);
  return steps_per_s && tokens > 0 ? format_count(*steps_per_s * tokens) : "-";
}

std::string device_line(const RunLog& run, const SessionEvent& event) {
  const char* what = event.kind == SessionEvent::Kind::joined ? "joined"
                     : event.kind == SessionEvent::Kind::left ? "left"
                                                              : "lost";
  const bool is_host = event.host >= 0;
  return fmt::format("{:7.1f} s  {} {}  {}{}{}", run.time_s, is_host ? "host" : "device",
                     is_host ? event.host : event.device, what, event.reason.empty() ? "" : "  ",
                     event.reason);
}

std::string checkpoint_line(const RunLog& run, const SessionEvent& event, bool stopping) {
  using Kind = SessionEvent::Kind;
  std::string what;
  if (event.kind == Kind::resumed) {
    what = fmt::format("resumed after step {}", event.step);
  } else if (event.kind == Kind::damaged) {
    what = fmt::format("a checkpoint is DAMAGED: {}", event.reason);
  } else if (event.kind == Kind::saved && !event.reason.empty()) {
    what = fmt::format("CHECKPOINT NOT WRITTEN after step {}, older ones stay: {}", event.step,
                       event.reason);
  } else if (event.kind == Kind::saved && stopping) {
    what = fmt::format("checkpoint written after step {}", event.step);
  } else {
    return "";
  }
  return fmt::format("{}  {}", line_head(run, event.trial.index()), what);
}

std::string progress_line(const RunLog& run, const RecentSpeed& speed, std::size_t trial) {
  const auto& log = run.trials[trial];
  const auto& result = log.result;
  std::string line = fmt::format("{}  {:7}", line_head(run, trial), to_string(result.state));
  if (result.steps > 0) {
    line += fmt::format("  step {:{}}/{}  loss {}", result.steps,
                        fmt::formatted_size("{}", log.max_steps), log.max_steps,
                        loss_text(result.final_loss));
    if (result.eval_loss) line += fmt::format("  eval loss {}", loss_text(result.eval_loss));
    for (const auto& [name, value] : result.metrics) {
      line += fmt::format("  {} {}", name, loss_text(value));
    }
    const bool is_running = result.state == TrialState::running;
    line += fmt::format("  {} tokens/s", is_running ? speed_text(run, speed, trial)
                                                    : format_count(result.tokens_per_s));
  } else if (run.trials.size() > 1) {
    line += "  " + result.name;
  }
  return result.reason.empty() ? line : line + "  " + result.reason;
}

std::string stopping_text(const RunLog& run) {
  constexpr std::size_t kMostNames = 4;
  std::vector<std::string> names;
  for (std::size_t t = 0; t < run.trials.size(); ++t) {
    if (is_unsaved(run.trials[t])) names.push_back(short_name(run, t));
  }
  if (names.empty()) return "stopping: ending the running operations";
  const std::size_t num_more = names.size() > kMostNames ? names.size() - kMostNames : 0;
  names.resize(names.size() - num_more);
  std::string text = fmt::format("stopping: writing the checkpoints of {}", fmt::join(names, ", "));
  return num_more == 0 ? text : fmt::format("{} and {} more", text, num_more);
}

}  // namespace spillway
