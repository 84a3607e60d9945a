#include "apps/progress.h"

#include <algorithm>
#include <ostream>

#include "apps/format.h"

namespace spillway {
namespace {

/// Between two lines of a trial that runs.
constexpr double kInterval = 10;

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

std::string padded_left(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

}  // namespace

Progress::Progress(std::ostream& out, const std::vector<Trial>& trials)
    : out_(out), trials_(trials), lines_(trials.size()) {
  for (const auto& trial : trials) name_width_ = std::max(name_width_, trial.name.size());
}

void Progress::show(std::span<const SessionEvent> events) {
  for (const auto& event : events) {
    Line& line = lines_[event.trial.index()];
    if (event.kind == SessionEvent::Kind::eval) {
      line.eval_loss = event.loss;
      line.evaluated = true;
      continue;
    }
    line.latest = event;
    const bool due = event.time_s - line.shown_s >= kInterval;
    if (event.kind == SessionEvent::Kind::step && !due) continue;
    print(event.trial.index());
    line.shown_s = event.time_s;
  }
  out_.flush();
}

void Progress::print(std::size_t trial) {
  const Line& line = lines_[trial];
  const SessionEvent& event = line.latest;
  const auto max_steps = std::to_string(trials_[trial].config.train.max_steps);
  out_ << padded_left(format_fixed(event.time_s, 1), 7) << " s  "
       << padded(trials_[trial].name, name_width_) << "  " << padded(to_string(event.state), 7);
  if (event.step > 0) {
    out_ << "  step " << padded_left(std::to_string(event.step), max_steps.size()) << "/"
         << max_steps << "  loss " << format_fixed(event.loss, 4);
    if (line.evaluated) out_ << "  eval loss " << format_fixed(line.eval_loss, 4);
    out_ << "  " << format_count(event.tokens_per_s) << " tokens/s";
  }
  if (!event.reason.empty()) out_ << "  " << event.reason;
  out_ << '\n';
}

}  // namespace spillway
