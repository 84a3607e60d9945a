#include "runs/log/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/os/file_system.h"
#include "runs/log/lines.h"
#include "runs/text/csv.h"
#include "spillway/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxPending = 1 << 18;  // bytes that wait to be written

std::string header(const std::vector<std::string>& metrics) {
  std::vector<std::string> cells{"step",         "loss",   "learning_rate", "gradient_norm",
                                 "tokens_per_s", "time_s", "eval_loss"};
  cells.insert(cells.end(), metrics.begin(), metrics.end());
  return csv_line(cells);
}

/// Names behind `eval_loss`.
std::vector<std::string> metrics_in(std::string_view header) {
  constexpr std::string_view kLast = ",eval_loss,";
  const std::size_t last = header.find(kLast);
  std::vector<std::string> names;
  if (last == header.npos) return names;
  std::istringstream cells(std::string(header.substr(last + kLast.size())));
  for (std::string name; std::getline(cells, name, ',');) {
    if (name.ends_with('\r')) name.pop_back();
    names.push_back(name);
  }
  return names;
}

std::string line_of(const StepMetrics& row, const std::vector<std::string>& metrics) {
  std::vector<std::string> cells{fmt::to_string(row.step),    csv_cell(row.loss),
                                 csv_cell(row.learning_rate), csv_cell(row.gradient_norm),
                                 csv_cell(row.tokens_per_s),  csv_cell(row.time_s),
                                 csv_cell(row.eval_loss)};
  for (const std::string& name : metrics) {
    const auto found = row.metrics.find(name);
    cells.push_back(found == row.metrics.end() ? "" : csv_cell(found->second));
  }
  return csv_line(cells);
}

/// The number at the start of `text`, if there is one.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} ? std::optional(number) : std::nullopt;
}

/// Parses a line that line_of() made.
StepMetrics row_of(std::string_view line, const std::vector<std::string>& metrics) {
  StepMetrics row{.step = parse_number<std::int64_t>(line).value_or(0)};
  const auto next = [&]() -> std::optional<double> {
    const std::size_t comma = line.find(',');
    if (comma == line.npos) return std::nullopt;
    line.remove_prefix(comma + 1);
    return parse_number<double>(line);
  };
  for (auto* cell : {&row.loss, &row.learning_rate, &row.gradient_norm, &row.tokens_per_s,
                     &row.time_s, &row.eval_loss})
    *cell = next();
  for (const std::string& name : metrics) {
    if (const auto value = next()) row.metrics[name] = *value;
  }
  return row;
}

/// Restores what a checkpoint knows of a step; throughput and time are known to the log alone.
void restore(StepMetrics& row, const StepMetrics& saved) {
  row.loss = saved.loss;
  row.learning_rate = saved.learning_rate;
  row.gradient_norm = saved.gradient_norm;
  row.eval_loss = saved.eval_loss;
  row.metrics = saved.metrics;
}

/// Replaces whatever has that name.
void create(const fs::path& path, std::string_view text) {
  make_folders(path.parent_path());
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw IoError("cannot remove", path, errno);
  append_to(path, text, O_CREAT | O_EXCL);
}

}  // namespace

std::vector<StepMetrics> read_metrics(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<StepMetrics> rows;
  std::string line;
  read_line(in, line);
  const std::vector<std::string> metrics = metrics_in(line);
  while (read_line(in, line)) rows.push_back(row_of(line, metrics));
  return rows;
}

MetricsFile::MetricsFile(fs::path path, std::optional<TensorboardFile> board,
                         std::vector<std::string> metrics)
    : path_(std::move(path)),
      board_(std::move(board)),
      metrics_(std::move(metrics)),
      pending_(header(metrics_)) {}

void MetricsFile::add(const StepMetrics& row) {
  if (row.step <= (open_ ? open_->step : last_)) rewrite(row.step - 1, {});
  complete();
  open_ = row;
  if (pending_.size() > kMaxPending) flush();
}

void MetricsFile::add_eval(std::int64_t step, double loss, Metrics metrics) {
  if (step < (open_ ? open_->step : last_ + 1)) return;
  if (!open_ || open_->step != step) add({.step = step});
  open_->eval_loss = loss;
  open_->metrics = std::move(metrics);
}

void MetricsFile::resume(std::int64_t last, const std::map<std::int64_t, StepMetrics>& saved) {
  rewrite(last, saved);
  if (!open_ || open_->step != last) return;
  open_->eval_loss.reset();
  open_->metrics.clear();
}

void MetricsFile::complete() {
  if (!open_) return;
  pending_ += line_of(*open_, metrics_);
  if (board_) board_->add(*open_);
  last_ = open_->step;
  open_.reset();
}

void MetricsFile::end(TrialState state) {
  complete();
  if (board_) board_->end(state);
}

void MetricsFile::flush() {
  if (!pending_.empty()) {
    is_made_ ? append_to(path_, pending_, 0) : create(path_, pending_);
    is_made_ = true;
    pending_.clear();
  }
  if (board_) board_->flush();
}

/// Drops the lines after step `last` and adds or restores those in `saved`. Leaves the last open.
void MetricsFile::rewrite(std::int64_t last, const std::map<std::int64_t, StepMetrics>& saved) {
  complete();
  flush();
  std::ifstream in(path_, std::ios::binary);  // stays readable when create() unlinks it
  is_made_ = false;
  pending_ = header(metrics_);
  if (board_) board_->restart();
  last_ = 0;
  auto next = saved.begin();
  const auto keep = [&](const StepMetrics& row) {
    complete();
    open_ = row;
    if (pending_.size() > kMaxPending) flush();
  };
  std::string line;
  for (std::getline(in, line); std::getline(in, line);) {
    StepMetrics row = row_of(line, metrics_);
    if (row.step > last) break;
    for (; next != saved.end() && next->first < row.step; ++next) keep(next->second);
    if (next != saved.end() && next->first == row.step) restore(row, next++->second);
    keep(row);
  }
  for (; next != saved.end(); ++next) keep(next->second);
  flush();
}

}  // namespace spillway
