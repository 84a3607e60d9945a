#include "runs/log/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string_view>
#include <utility>

#include "core/os/file_system.h"
#include "runs/text/csv.h"
#include "spillway/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

/// Of what waits to be written.
constexpr std::size_t kMaxPending = 1 << 18;

std::string header() {
  return csv_line(
      {"step", "loss", "learning_rate", "gradient_norm", "tokens_per_s", "time_s", "eval_loss"});
}

std::string line_of(const StepMetrics& row) {
  return csv_line({std::to_string(row.step), csv_cell(row.loss), csv_cell(row.learning_rate),
                   csv_cell(row.gradient_norm), csv_cell(row.tokens_per_s), csv_cell(row.time_s),
                   csv_cell(row.eval_loss)});
}

/// The number that `text` begins with, if it is one.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} ? std::optional(number) : std::nullopt;
}

/// Of a line that line_of() made.
StepMetrics row_of(std::string_view line) {
  StepMetrics row{.step = parse_number<std::int64_t>(line).value_or(0)};
  for (auto* cell : {&row.loss, &row.learning_rate, &row.gradient_norm, &row.tokens_per_s,
                     &row.time_s, &row.eval_loss}) {
    const std::size_t comma = line.find(',');
    if (comma == line.npos) break;
    line.remove_prefix(comma + 1);
    *cell = parse_number<double>(line);
  }
  return row;
}

/// Without the values that only the program that took the step knew.
void say_again(StepMetrics& row, const StepMetrics& said) {
  row.loss = said.loss;
  row.learning_rate = said.learning_rate;
  row.gradient_norm = said.gradient_norm;
  row.eval_loss = said.eval_loss;
}

/// A file that is written from its beginning, or from its end on.
class Appender {
 public:
  Appender(const fs::path& path, int flags)
      : path_(path),
        file_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags, 0666)) {
    if (file_ < 0) throw IoError("cannot open", path_, errno);
  }
  ~Appender() { ::close(file_); }
  Appender(const Appender&) = delete;
  Appender& operator=(const Appender&) = delete;

  void write(std::string_view text) const {
    while (!text.empty()) {
      const auto written = ::write(file_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw IoError("cannot write", path_, errno);
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }

 private:
  const fs::path path_;
  const int file_;
};

/// In place of whatever has that name.
Appender make_file(const fs::path& path) {
  make_folders(path.parent_path());
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    throw IoError("cannot remove", path, errno);
  }
  return {path, O_CREAT | O_EXCL};
}

}  // namespace

MetricsFile::MetricsFile(fs::path path) : path_(std::move(path)), pending_(header()) {}

void MetricsFile::add(const StepMetrics& row) {
  if (row.step <= (open_ ? open_->step : last_)) rewrite(row.step - 1, {});
  complete();
  open_ = row;
  if (pending_.size() > kMaxPending) flush();
}

void MetricsFile::add_eval(std::int64_t step, double loss) {
  if (step < (open_ ? open_->step : last_ + 1)) return;
  if (!open_ || open_->step != step) add({.step = step});
  open_->eval_loss = loss;
}

void MetricsFile::resume(std::int64_t last, const std::map<std::int64_t, StepMetrics>& said) {
  rewrite(last, said);
  if (open_ && open_->step == last) open_->eval_loss.reset();
}

void MetricsFile::complete() {
  if (!open_) return;
  pending_ += line_of(*open_);
  last_ = open_->step;
  open_.reset();
}

void MetricsFile::flush() {
  if (pending_.empty()) return;
  if (is_made_) {
    Appender(path_, 0).write(pending_);
  } else {
    make_file(path_).write(pending_);
  }
  is_made_ = true;
  pending_.clear();
}

/// Lines of steps after `last` go, lines of `said` come or are as said. The last one is open then.
void MetricsFile::rewrite(std::int64_t last, const std::map<std::int64_t, StepMetrics>& said) {
  complete();
  flush();
  std::ifstream in(path_, std::ios::binary);  // as it is: the new one takes its name only
  is_made_ = false;
  pending_ = header();
  last_ = 0;
  auto next = said.begin();
  const auto keep = [&](const StepMetrics& row) {
    complete();
    open_ = row;
    if (pending_.size() > kMaxPending) flush();
  };
  std::string line;
  for (std::getline(in, line); std::getline(in, line);) {
    StepMetrics row = row_of(line);
    if (row.step > last) break;
    for (; next != said.end() && next->first < row.step; ++next) keep(next->second);
    if (next != said.end() && next->first == row.step) say_again(row, next++->second);
    keep(row);
  }
  for (; next != said.end(); ++next) keep(next->second);
  flush();
}

}  // namespace spillway
