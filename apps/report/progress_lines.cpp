#include <algorithm>
#include <ostream>
#include <vector>

#include "apps/report/progress.h"
#include "runs/text/format.h"
#include "runs/text/terminal_text.h"

namespace spillway {
namespace {

std::size_t name_width(const RunLog& run) {
  std::size_t width = 0;
  for (const auto& trial : run.trials) width = std::max(width, columns_of(trial.result.name));
  return width;
}

class LineProgress final : public Progress {
 public:
  explicit LineProgress(std::ostream& out) : out_(out) {}

  void take(const RunLog& run, const SessionEvent& event) override {
    constexpr double kInterval = 10;  // between two lines of a trial that runs
    if (event.device >= 0) {
      out_ << device_line(run, event) << '\n';
      return;
    }
    if (const auto line = checkpoint_line(run, event); !line.empty()) out_ << line << '\n';
    shown_s_.resize(run.trials.size());
    auto& shown_s = shown_s_[event.trial.index()];
    const bool due = event.kind == SessionEvent::Kind::step && event.time_s - shown_s >= kInterval;
    if (!due && event.kind != SessionEvent::Kind::state) return;
    out_ << progress_line(run, event.trial.index()) << '\n';
    shown_s = event.time_s;
  }
  void show(const RunLog&) override { out_.flush(); }
  void finish() override {}

 private:
  std::ostream& out_;
  std::vector<double> shown_s_;  // by trial
};

}  // namespace

std::string device_line(const RunLog& run, const SessionEvent& event) {
  const char* what = event.kind == SessionEvent::Kind::joined ? "joined"
                     : event.kind == SessionEvent::Kind::left ? "left"
                                                              : "lost";
  const std::string line = padded_left(format_fixed(run.time_s, 1), 7) + " s  device " +
                           std::to_string(event.device) + "  " + what;
  return event.reason.empty() ? line : line + "  " + event.reason;
}

std::string checkpoint_line(const RunLog& run, const SessionEvent& event) {
  std::string what;
  if (event.kind == SessionEvent::Kind::resumed) {
    what = "resumed after step " + std::to_string(event.step);
  } else if (event.kind == SessionEvent::Kind::damaged) {
    what = "a checkpoint is DAMAGED: " + event.reason;
  } else if (event.kind == SessionEvent::Kind::saved && !event.reason.empty()) {
    what = "CHECKPOINT NOT WRITTEN after step " + std::to_string(event.step) +
           ", older ones stay: " + event.reason;
  } else {
    return "";
  }
  return padded_left(format_fixed(run.time_s, 1), 7) + " s  " +
         padded(run.trials[event.trial.index()].result.name, name_width(run)) + "  " + what;
}

std::string progress_line(const RunLog& run, std::size_t trial) {
  const auto& log = run.trials[trial];
  const auto& result = log.result;
  const auto max_steps = std::to_string(log.max_steps);
  std::string line = padded_left(format_fixed(run.time_s, 1), 7) + " s  " +
                     padded(result.name, name_width(run)) + "  " +
                     padded(to_string(result.state), 7);
  if (result.steps > 0) {
    line += "  step " + padded_left(std::to_string(result.steps), max_steps.size()) + "/" +
            max_steps + "  loss " + format_fixed(*result.final_loss, 4);
    if (result.eval_loss) line += "  eval loss " + format_fixed(*result.eval_loss, 4);
    line += "  " + format_count(result.tokens_per_s) + " tokens/s";
  }
  return result.reason.empty() ? line : line + "  " + result.reason;
}

std::unique_ptr<Progress> make_line_progress(std::ostream& out) {
  return std::make_unique<LineProgress>(out);
}

}  // namespace spillway
