#include "apps/sweep.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "apps/safe_name.h"
#include "apps/yaml_path.h"

namespace spillway {
namespace {

constexpr std::size_t kMaxTrials = 10'000;

std::string value_text(const YamlNode& value) {
  if (value.kind == YamlNode::Kind::scalar) return value.text;
  std::string text = to_yaml(value);
  text.pop_back();
  return text;
}

/// Whether `key` is, holds or lies in something that every trial of a run shares.
bool is_shared(std::string_view key) {
  for (const std::string_view shared : {"name", "output_dir", "devices", "host_memory",
                                        "scheduling.policy", "scheduling.double_buffer", "sweep"}) {
    if (lies_in(key, shared) || lies_in(shared, key)) return true;
  }
  return false;
}

/// Values of a section would replace those of a key inside it.
void check_overlap(const SweepConfig& sweep, const SweepParameter& inner, Findings& findings) {
  for (const auto& outer : sweep.parameters) {
    if (outer.key != inner.key && lies_in(inner.key, outer.key))
      findings.add("sweep.parameters." + inner.key, inner.line,
                   "lies in " + outer.key + ", which is swept too; sweep one of them");
  }
}

void check_values(const SweepParameter& parameter, Findings& findings) {
  std::set<std::string> seen;
  for (const auto& value : parameter.values) {
    if (!seen.insert(value_text(value)).second)
      findings.add("sweep.parameters." + parameter.key + ".values", value.line,
                   value_text(value) + " stands here twice; remove one");
  }
}

/// Whether the sweep can be expanded; adds findings where not.
bool check_sweep(const SweepConfig& sweep, Findings& findings) {
  const auto before = findings.all().size();
  std::size_t num_trials = 1;
  bool complete = true;
  for (const auto& parameter : sweep.parameters) {
    complete = complete && !parameter.values.empty();
    if (is_shared(parameter.key))
      findings.add("sweep.parameters." + parameter.key, parameter.line,
                   "cannot be swept: all trials of a run share it");
    check_overlap(sweep, parameter, findings);
    check_values(parameter, findings);
    num_trials =
        std::min(kMaxTrials + 1, num_trials * std::max<std::size_t>(parameter.values.size(), 1));
  }
  if (num_trials > kMaxTrials)
    findings.add("sweep.parameters", 0,
                 "makes more than " + std::to_string(kMaxTrials) + " trials; list fewer values");
  return complete && findings.all().size() == before;
}

/// The last part of a swept key, or the whole where another ends the same.
std::string short_key(const SweepConfig& sweep, const std::string& key) {
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  const auto same = std::count_if(sweep.parameters.begin(), sweep.parameters.end(),
                                  [&](const auto& p) { return last(p.key) == last(key); });
  return same > 1 ? key : last(key);
}

Trial make_trial(const YamlNode& tree, const SweepConfig& sweep, std::size_t number,
                 Findings& findings) {
  Trial trial{.tree = tree};
  for (auto p = sweep.parameters.rbegin(); p != sweep.parameters.rend(); ++p) {
    const auto& value = p->values[number % p->values.size()];
    number /= p->values.size();
    trial.parameters.insert(trial.parameters.begin(), {p->key, value_text(value)});
    try {
      set_at(trial.tree, p->key, value);
    } catch (const ConfigError& e) {
      findings.add("sweep.parameters." + p->key, p->line, "names no place in the configuration");
    }
  }
  for (const auto& [key, text] : trial.parameters)
    trial.name += (trial.name.empty() ? "" : ",") + short_key(sweep, key) + "=" + text;
  trial.config = read_config(trial.tree, findings);
  return trial;
}

void make_names_safe(std::vector<Trial>& trials) {
  std::set<std::string> taken;
  for (auto& trial : trials) {
    const std::string wish = safe_name(trial.name);
    trial.name = wish;
    for (int i = 2; !taken.insert(trial.name).second; ++i)
      trial.name = wish + "-" + std::to_string(i);
  }
}

}  // namespace

std::vector<Trial> expand_trials(const YamlNode& tree, Findings& findings) {
  // Without the swept values a required key may be missing, so these findings are not final.
  Findings provisional;
  const auto base = read_config(tree, provisional);
  std::vector<Trial> trials;
  if (base.sweep.parameters.empty() || !check_sweep(base.sweep, findings)) {
    trials.push_back({.name = base.name, .tree = tree, .config = read_config(tree, findings)});
  } else {
    std::size_t num_trials = 1;
    for (const auto& parameter : base.sweep.parameters) num_trials *= parameter.values.size();
    for (std::size_t i = 0; i < num_trials; ++i)
      trials.push_back(make_trial(tree, base.sweep, i, findings));
  }
  make_names_safe(trials);
  return trials;
}

}  // namespace spillway
