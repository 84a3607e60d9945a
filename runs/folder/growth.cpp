#include "runs/folder/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "runs/config/yaml_path.h"
#include "runs/folder/prepare.h"
#include "spillway/error.h"

namespace spillway {
namespace {

using Parameters = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kRemedy =
    "a run may get more trials, but keeps those that it has; train others in another folder";

/// Why a trial of the run is not among the given ones.
ConfigError missing(const TrialLog& trial, const std::vector<Trial>& given, const RunLog& run) {
  const SweepConfig& sweep = given.front().config.sweep;
  if (sweep.method == SweepMethod::random && given.size() < run.trials.size()) {
    return {"sweep.run_cap", 0,
            fmt::format("is {}, but the run has {} trials; write at least {}", sweep.run_cap,
                        run.trials.size(), run.trials.size())};
  }
  for (const auto& value : trial.parameters) {
    const auto has_it = [&](const Trial& other) {
      return std::ranges::count(other.parameters, value) > 0;
    };
    if (std::ranges::any_of(given, has_it)) continue;
    return {"sweep.parameters." + value.first, 0,
            fmt::format("no longer gives {}, the value of trial '{}'; {}", value.second,
                        trial.result.name, kRemedy)};
  }
  return {"sweep", 0, fmt::format("does not give the trial '{}'; {}", trial.result.name, kRemedy)};
}

/// A clone is none of the configuration's trials.
Trial clone_in(const TrialLog& known, Trial source) {
  source.name = known.result.name;
  source.parameters = known.parameters;
  TrainConfig& train = source.config.train;
  train.max_steps = std::max(train.max_steps, known.max_steps);
  return source;
}

/// Puts the suffix behind the name of a new trial that another trial has.
void make_names_unique(std::vector<Trial>& trials, std::size_t first_new) {
  std::set<std::string> taken;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const std::string wish = trials[t].name;
    for (int i = 2; !taken.insert(trials[t].name).second && t >= first_new; ++i) {
      trials[t].name = fmt::format("{}-{}", wish, i);
    }
  }
}

/// Whether the document has one number of steps for all trials.
bool has_same_steps(const RunConfig& config) {
  const auto is_steps = [](const SweepParameter& parameter) {
    return lies_in("train.max_steps", parameter.key);
  };
  return config.num_train_epochs == 0 && std::ranges::none_of(config.sweep.parameters, is_steps);
}

/// `ends` and then, if the trial gets longer, its length before.
std::vector<std::int64_t> extended(std::vector<std::int64_t> ends, std::int64_t before,
                                   std::int64_t now) {
  if (now > before) ends.push_back(before);
  return ends;
}

/// TrainConfig::extended_from of trials that are new.
std::vector<std::int64_t> extended(const TrainConfig& stored, const TrainConfig& given) {
  return extended(stored.extended_from, stored.max_steps, given.max_steps);
}

}  // namespace

std::vector<Trial> match_trials(std::vector<Trial> given, const RunLog& run) {
  std::multimap<std::map<std::string, std::string>, std::size_t> places;
  const auto key_of = [](const Parameters& parameters) {
    return std::map<std::string, std::string>(parameters.begin(), parameters.end());
  };
  for (std::size_t t = 0; t < given.size(); ++t) places.emplace(key_of(given[t].parameters), t);
  std::vector<Trial> matched;
  std::vector<bool> is_taken(given.size());
  for (const TrialLog& known : run.trials) {
    if (known.clone_of) {
      matched.push_back(clone_in(known, matched.at(*known.clone_of)));
      continue;
    }
    const auto found = places.find(key_of(known.parameters));  // draws may be equal: the first
    if (found == places.end()) throw missing(known, given, run);
    matched.push_back(given[found->second]);
    matched.back().name = known.result.name;
    is_taken[found->second] = true;
    places.erase(found);
  }
  for (std::size_t t = 0; t < given.size(); ++t) {
    if (!is_taken[t]) matched.push_back(std::move(given[t]));
  }
  make_names_unique(matched, run.trials.size());
  return matched;
}

std::optional<RunConfig> stored_config(const OutputFolder& folder) {
  const std::filesystem::path file = folder.file("config.yaml");
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;
  return read_first_trial(file, {}).config;  // whoever reads it with overrides reports problems
}

std::vector<Trial> trials_with(const OutputFolder& folder, const std::vector<std::string>& values,
                               Findings& findings) {
  YamlNode trial{.kind = YamlNode::Kind::map};
  for (const std::string& text : values) {
    YamlNode value;
    apply_override(value, "value=" + text.substr(text.find('=') + 1));  // its kinds of values
    value = *value.find("value");
    value.key = text.substr(0, text.find('='));
    if (value.key.empty() || value.key.size() == text.size())
      throw ConfigError("", 0, fmt::format("'{}' is not a value; write it as key=value", text));
    trial.children.push_back(std::move(value));
  }
  YamlNode tree = read_yaml_file(folder.file("config.yaml"));
  YamlNode list{.kind = YamlNode::Kind::list};
  if (const YamlNode* before = find_at(tree, "sweep.trials")) list = *before;
  list.children.push_back(std::move(trial));
  set_at(tree, "sweep.trials", std::move(list));
  return trials_of(tree, findings);
}

std::vector<Trial> read_trials_of_run(const std::string& file, std::vector<std::string> overrides,
                                      const OutputFolder& folder, Findings& findings) {
  const Trial any = read_first_trial(file, overrides);
  const std::vector<YamlNode>& given = any.config.sweep.trials;
  YamlNode list{.kind = YamlNode::Kind::list, .children = given};
  const auto stored = stored_config(folder);
  for (const YamlNode& trial : stored ? stored->sweep.trials : std::vector<YamlNode>{}) {
    const auto is_same = [&](const YamlNode& other) { return to_yaml(other) == to_yaml(trial); };
    if (std::ranges::none_of(given, is_same)) list.children.push_back(trial);
  }
  const auto keep_choice = [&](const std::string& key, const std::string& value) {
    if (find_at(any.tree, key) == nullptr) overrides.push_back(key + "=" + value);
  };
  if (stored) {  // both may have been chosen as the run began
    keep_choice("scheduling.sharing", std::string(to_string(stored->session.sharing)));
    keep_choice("activation_share", fmt::format("{}", stored->session.activation_share));
  }
  if (!list.children.empty()) overrides.push_back("sweep.trials=" + to_yaml(list));
  return read_trials(file, overrides, findings);
}

void extend_trials(std::vector<Trial>& trials, const RunLog& run, const RunConfig& stored,
                   Findings& findings) {
  const bool are_alike = has_same_steps(stored);
  for (std::size_t t = 0; t < trials.size(); ++t) {
    TrainConfig& train = trials[t].config.train;
    if (t >= run.trials.size()) {
      if (are_alike) train.extended_from = extended(stored.train, train);
      continue;
    }
    const TrialLog& known = run.trials[t];
    if (known.extended_alone) train.max_steps = std::max(train.max_steps, known.max_steps);
    if (known.extension) train.lr_scheduler_extend = *known.extension;
    train.extended_from = extended(known.extended_from, known.max_steps, train.max_steps);
    if (train.max_steps >= known.max_steps) continue;
    findings.add("train.max_steps", 0,
                 fmt::format("is {}, but the run trains {} steps; write at least {}",
                             train.max_steps, known.max_steps, known.max_steps));
  }
}

void store_growth(const OutputFolder& folder, const RunConfig& stored, const RunConfig& given) {
  RunConfig grown = stored;
  grown.sweep.run_cap = given.sweep.run_cap;
  grown.sweep.parameters = given.sweep.parameters;
  grown.sweep.trials = given.sweep.trials;
  for (SweepParameter& parameter : grown.sweep.parameters) {
    const auto known =
        std::ranges::find(stored.sweep.parameters, parameter.key, &SweepParameter::key);
    if (known != stored.sweep.parameters.end()) parameter.base = known->base;
  }
  grown.num_train_epochs = given.num_train_epochs;
  if (has_same_steps(stored)) {
    grown.train.extended_from = extended(stored.train, given.train);
    grown.train.max_steps = given.train.max_steps;
    grown.train.lr_scheduler_extend = given.train.lr_scheduler_extend;
  }
  const std::string text = to_yaml(grown);
  if (text != to_yaml(stored)) folder.write("config.yaml", text);
}

}  // namespace spillway
