#include "runs/log/trial_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "runs/text/format.h"

namespace spillway {
namespace {

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

std::string short_name(const RunLog& run, std::size_t trial) {
  if (run.trials.size() == 1) return run.trials.front().result.name;
  return fmt::format("t{:0{}}", trial, fmt::formatted_size("{}", run.trials.size()));
}

std::optional<std::size_t> trial_named(const RunLog& run, std::string_view name) {
  std::optional<std::size_t> found;
  for (std::size_t t = 0; t < run.trials.size(); ++t) {
    if (run.trials[t].result.name == name) return t;
    if (short_name(run, t) == name) found = t;
  }
  return found;
}

std::filesystem::path trial_folder(const std::filesystem::path& folder, const std::string& name) {
  return folder / "trials" / name;
}

std::vector<std::string> parameter_titles(const RunLog& run) {
  std::vector<std::string> titles;
  if (run.trials.empty()) return titles;
  const auto& parameters = run.trials.front().parameters;
  for (const auto& [key, value] : parameters) {
    const std::string title = last_part(key);
    const auto alike = std::ranges::count_if(
        parameters, [&](const auto& other) { return last_part(other.first) == title; });
    titles.push_back(alike > 1 ? key : title);
  }
  return titles;
}

std::vector<std::string> short_parameters(const TrialLog& trial) {
  std::vector<std::string> values;
  for (const auto& [key, value] : trial.parameters) values.push_back(format_rounded(value));
  return values;
}

}  // namespace spillway
