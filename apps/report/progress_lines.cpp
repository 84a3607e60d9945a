#include <fmt/format.h>

#include <ostream>
#include <vector>

#include "apps/report/progress.h"
#include "apps/report/progress_text.h"
#include "apps/report/recent_speed.h"

namespace spillway {
namespace {

class LineProgress final : public Progress {
 public:
  explicit LineProgress(std::ostream& out) : out_(out) {}

  void take(const RunLog& run, const SessionEvent& event) override {
    constexpr double kInterval = 10;  // seconds between two lines of a running trial
    speed_.take(event);
    if (!event.is_of_trial()) {
      out_ << device_line(run, event) << '\n';
      return;
    }
    if (const auto line = checkpoint_line(run, event, stopping_); !line.empty())
      out_ << line << '\n';
    shown_s_.resize(run.trials.size());
    auto& shown_s = shown_s_[event.trial.index()];
    const bool due = event.kind == SessionEvent::Kind::step && event.time_s - shown_s >= kInterval;
    if (!due && event.kind != SessionEvent::Kind::state) return;
    out_ << progress_line(run, speed_, event.trial.index()) << '\n';
    shown_s = event.time_s;
  }
  void show(const RunLog&) override { out_.flush(); }
  void stop(const RunLog& run) override {
    stopping_ = true;
    out_ << fmt::format("{:7.1f} s  {}\n", run.time_s, stopping_text(run)) << std::flush;
  }
  void finish() override {}

 private:
  std::ostream& out_;
  RecentSpeed speed_;
  bool stopping_ = false;
  std::vector<double> shown_s_;  // by trial
};

}  // namespace

std::unique_ptr<Progress> make_line_progress(std::ostream& out) {
  return std::make_unique<LineProgress>(out);
}

}  // namespace spillway
