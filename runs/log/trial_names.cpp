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

std::vector<std::string> swept_keys(const RunLog& run) {
  std::vector<std::string> keys;
  for (const TrialLog& trial : run.trials) {
    for (const auto& [key, value] : trial.parameters) {
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
  }
  return keys;
}

std::vector<std::string> parameter_titles(const std::vector<std::string>& keys) {
  std::vector<std::string> titles;
  for (const std::string& key : keys) {
    const auto alike = std::ranges::count(keys, last_part(key), last_part);
    titles.push_back(alike > 1 ? key : last_part(key));
  }
  return titles;
}

const std::string* parameter_of(const TrialLog& trial, const std::string& key) {
  const auto found =
      std::ranges::find(trial.parameters, key, &std::pair<std::string, std::string>::first);
  return found == trial.parameters.end() ? nullptr : &found->second;
}

std::vector<std::string> short_parameters(const TrialLog& trial,
                                          const std::vector<std::string>& keys) {
  std::vector<std::string> values;
  for (const std::string& key : keys) {
    const std::string* value = parameter_of(trial, key);
    values.push_back(value == nullptr ? "-" : format_rounded(*value));
  }
  return values;
}

}  // namespace spillway
