#include <fmt/format.h>

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
    constexpr double kInterval = 10;  // seconds between two lines of a running trial
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
  return fmt::format("{:7.1f} s  device {}  {}{}{}", run.time_s, event.device, what,
                     event.reason.empty() ? "" : "  ", event.reason);
}

std::string checkpoint_line(const RunLog& run, const SessionEvent& event) {
  std::string what;
  if (event.kind == SessionEvent::Kind::resumed) {
    what = fmt::format("resumed after step {}", event.step);
  } else if (event.kind == SessionEvent::Kind::damaged) {
    what = fmt::format("a checkpoint is DAMAGED: {}", event.reason);
  } else if (event.kind == SessionEvent::Kind::saved && !event.reason.empty()) {
    what = fmt::format("CHECKPOINT NOT WRITTEN after step {}, older ones stay: {}", event.step,
                       event.reason);
  } else {
    return "";
  }
  return fmt::format("{:7.1f} s  {}  {}", run.time_s,
                     padded(run.trials[event.trial.index()].result.name, name_width(run)), what);
}

std::string progress_line(const RunLog& run, std::size_t trial) {
  const auto& log = run.trials[trial];
  const auto& result = log.result;
  std::string line = fmt::format("{:7.1f} s  {}  {:7}", run.time_s,
                                 padded(result.name, name_width(run)), to_string(result.state));
  if (result.steps > 0) {
    line +=
        fmt::format("  step {:{}}/{}  loss {:.4f}", result.steps,
                    fmt::formatted_size("{}", log.max_steps), log.max_steps, *result.final_loss);
    if (result.eval_loss) line += fmt::format("  eval loss {:.4f}", *result.eval_loss);
    line += fmt::format("  {} tokens/s", format_count(result.tokens_per_s));
  }
  return result.reason.empty() ? line : line + "  " + result.reason;
}

std::unique_ptr<Progress> make_line_progress(std::ostream& out) {
  return std::make_unique<LineProgress>(out);
}

}  // namespace spillway
