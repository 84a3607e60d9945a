#include "experiments/elastic_replay/workload.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "spillway/error.h"

namespace spillway::experiments {
namespace {

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line);
  for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
  return cells;
}

double number(const std::string& cell, int line) {
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  if (cell.empty() || *end != '\0') throw ConfigError(cell, line, "is no number");
  return value;
}

ReplayJob job_of(const std::vector<std::string>& cells, int line) {
  if (cells.size() != 14) throw ConfigError("", line, "does not have 14 columns");
  const auto value = [&](std::size_t column) { return number(cells[column], line); };
  return {.arrival_s = value(2),
          .priority = static_cast<int>(value(3)),
          .demand = static_cast<int>(value(4)),
          .service_s = value(7),
          .start_up_s = value(8),
          .exponent = value(9),
          .priority_queue_s = value(10),
          .priority_jct_s = value(11),
          .wfs_queue_s = value(12),
          .wfs_jct_s = value(13)};
}

bool fits(const std::vector<ReplayJob>& jobs, int num_devices, double makespan_s) {
  return std::ranges::all_of(jobs, [&](const ReplayJob& first) {
    double device_s = 0;
    for (const ReplayJob& job : jobs) {
      if (job.arrival_s < first.arrival_s) continue;
      device_s += job.least_device_s(makespan_s - job.arrival_s);
    }
    return device_s <= num_devices * (makespan_s - first.arrival_s);
  });
}

}  // namespace

double ReplayJob::speed(int devices) const {
  return std::pow(static_cast<double>(devices) / demand, exponent);
}

double ReplayJob::least_device_s(double window_s) const {
  const double work_s = service_s - start_up_s, left_s = window_s - start_up_s;
  if (left_s < work_s) return std::numeric_limits<double>::infinity();
  const double alone_s = work_s / speed(1);
  if (left_s >= alone_s) return start_up_s + alone_s;
  return start_up_s + left_s * demand * std::pow(work_s / left_s, 1 / exponent);
}

std::vector<ReplayJob> read_workload(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw IoError("cannot open", path, errno);
  std::vector<ReplayJob> jobs;
  std::string line;
  for (int number_of_line = 1; std::getline(file, line); ++number_of_line) {
    if (number_of_line > 1) jobs.push_back(job_of(cells_of(line), number_of_line));
  }
  return jobs;
}

double shortest_makespan_s(const std::vector<ReplayJob>& jobs, int num_devices) {
  double low = 0, high = 0;
  for (const ReplayJob& job : jobs) {
    high = std::max(high, job.arrival_s);
    low += job.service_s * job.demand;
  }
  high += low;
  low = 0;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (fits(jobs, num_devices, middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace spillway::experiments
