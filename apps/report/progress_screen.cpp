#include <fmt/format.h>

#include <chrono>
#include <ostream>
#include <string>

#include "apps/report/progress.h"
#include "apps/report/progress_text.h"
#include "apps/report/recent_speed.h"
#include "apps/report/screen.h"
#include "apps/terminal/terminal.h"
#include "runs/text/terminal_text.h"

namespace spillway {
namespace {

class ScreenProgress final : public Progress {
 public:
  ScreenProgress(std::ostream& out, int file) : out_(out), file_(file) {}

  void take(const RunLog& run, const SessionEvent& event) override {
    speed_.take(event);
    if (!event.is_of_trial()) {
      keep(device_line(run, event));
      return;
    }
    if (const auto line = checkpoint_line(run, event, stopping_); !line.empty()) keep(line);
    if (event.kind != SessionEvent::Kind::state || event.state == TrialState::running) return;
    keep(progress_line(run, speed_, event.trial.index()));
  }

  void show(const RunLog& run) override {
    std::string text = erase() + ended_;
    ended_.clear();
    const auto lines =
        screen_lines(run, speed_, terminal_size(file_).value_or(TerminalSize{}), stopping_);
    for (const auto& line : lines) text += line + "\n";
    num_lines_ = lines.size();
    write(text);
  }

  void stop(const RunLog& run) override {
    stopping_ = true;
    show(run);
  }

  void finish() override {
    write(erase());
    num_lines_ = 0;
  }

 private:
  void keep(const std::string& line) { ended_ += fit_for_terminal(line) + "\n"; }

  /// Bypasses `out_`, which escapes control characters.
  void write(const std::string& text) {
    out_.flush();
    write_to_terminal(file_, text);
  }

  /// Moves the cursor to the first line of the block and clears from there. Source: ECMA-48, CPL
  /// and ED.
  std::string erase() const {
    if (num_lines_ == 0) return "";
    return fmt::format("\x1b[{}F\x1b[J", num_lines_);
  }

  std::ostream& out_;
  int file_;
  RecentSpeed speed_;
  bool stopping_ = false;
  std::string ended_;  // lines that are not printed yet
  std::size_t num_lines_ = 0;
};

}  // namespace

std::unique_ptr<Progress> make_screen_progress(std::ostream& out, int file) {
  return std::make_unique<ScreenProgress>(out, file);
}

}  // namespace spillway
