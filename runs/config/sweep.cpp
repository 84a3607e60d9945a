#include "runs/config/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "runs/config/sweep_values.h"
#include "runs/config/yaml_path.h"
#include "runs/text/safe_name.h"
#include "scheduler/elastic/rungs.h"

namespace spillway {
namespace {

std::string value_text(const YamlNode& value) {
  if (value.kind == YamlNode::Kind::scalar) return value.text;
  std::string text = to_yaml(value);
  text.pop_back();
  return text;
}

/// Whether `key` is, holds or lies in something that every trial of a run shares.
bool is_shared(std::string_view key) {
  for (const std::string_view shared :
       {"name", "output_dir", "resume", "devices", "links", "numerics", "activation_share",
        "host_memory", "offload_path", "data_root", "scheduling.policy", "scheduling.sharing",
        "scheduling.double_buffer", "scheduling.device_timeout", "checkpoint", "sweep"}) {
    if (lies_in(key, shared) || lies_in(shared, key)) return true;
  }
  return false;
}

/// Values of a section would replace those of a key inside it.
void check_overlap(const SweepConfig& sweep, const SweepParameter& inner, Findings& findings) {
  for (const auto& outer : sweep.parameters) {
    if (outer.key != inner.key && lies_in(inner.key, outer.key))
      findings.add("sweep.parameters." + inner.key, inner.line,
                   fmt::format("is part of {}, which is swept too; sweep one of them", outer.key));
  }
}

void check_values(const SweepParameter& parameter, Findings& findings) {
  std::set<std::string> seen;
  for (const auto& value : parameter.values) {
    if (!seen.insert(value_text(value)).second)
      findings.add("sweep.parameters." + parameter.key + ".values", value.line,
                   value_text(value) + " is listed twice; remove one");
  }
}

void check_sweep(const SweepConfig& sweep, Findings& findings) {
  for (const auto& parameter : sweep.parameters) {
    if (is_shared(parameter.key))
      findings.add("sweep.parameters." + parameter.key, parameter.line,
                   "cannot be swept: all trials of a run share it");
    check_overlap(sweep, parameter, findings);
    check_values(parameter, findings);
  }
}

/// Number of combinations of a grid; beyond the limit, one more than it.
std::size_t count_trials(const SweepConfig& sweep, Findings& findings) {
  const auto run_cap = static_cast<std::size_t>(sweep.run_cap);
  if (sweep.method == SweepMethod::random) return std::max<std::size_t>(run_cap, 1);
  std::size_t num_trials = 1;
  for (const auto& parameter : sweep.parameters)
    num_trials = std::min(kMaxTrials + 1, num_trials * grid_size(parameter));
  if (run_cap > 0) return std::min(num_trials, run_cap);
  if (num_trials <= kMaxTrials) return num_trials;
  findings.add(
      "sweep.parameters", sweep.line,
      fmt::format("makes more than {} trials; list fewer values, or write run_cap", kMaxTrials));
  return 1;
}

/// By parameter, its value in trial `number`.
std::vector<YamlNode> values_of_trial(const SweepConfig& sweep, std::size_t number) {
  std::vector<YamlNode> values(sweep.parameters.size());
  std::size_t rest = number;
  for (std::size_t p = values.size(); p-- > 0;) {
    const auto& parameter = sweep.parameters[p];
    if (sweep.method == SweepMethod::random) {
      values[p] = random_value(parameter, sweep.seed, static_cast<std::uint32_t>(number));
    } else {
      values[p] = grid_value(parameter, rest % grid_size(parameter));
      rest /= grid_size(parameter);
    }
  }
  return values;
}

/// The last part of a swept key, or the whole where another ends the same.
std::string short_key(const SweepConfig& sweep, const std::string& key) {
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  const auto same = std::count_if(sweep.parameters.begin(), sweep.parameters.end(),
                                  [&](const auto& p) { return last(p.key) == last(key); });
  return same > 1 ? key : last(key);
}

/// A trial with a value put in, which its name has if `is_named`.
void put_value(Trial& trial, const std::string& key, const std::string& shown_key,
               const YamlNode& value, bool is_named) {
  remove_alternative(trial.tree, key);
  set_at(trial.tree, key, value);
  if (!is_named) return;
  trial.parameters.emplace_back(key, value_text(value));
  trial.name += (trial.name.empty() ? "" : ",") + shown_key + "=" + trial.parameters.back().second;
}

void finish_trial(Trial& trial, const RunConfig& base, Findings& findings) {
  if (trial.name.empty()) trial.name = base.name;
  trial.config = read_config(trial.tree, findings);
  trial.config.sweep = base.sweep;  // its seed is of the run, not of the trial
}

Trial make_trial(const YamlNode& tree, const RunConfig& base, const SweepConfig& sweep,
                 std::size_t number, Findings& findings) {
  Trial trial{.tree = tree};
  const auto values = values_of_trial(sweep, number);
  for (std::size_t p = 0; p < values.size(); ++p) {
    const auto& parameter = sweep.parameters[p];
    const bool is_named = parameter.distribution.shape != Distribution::Shape::constant;
    try {
      put_value(trial, parameter.key, short_key(sweep, parameter.key), values[p], is_named);
    } catch (const ConfigError& e) {
      findings.add("sweep.parameters." + parameter.key, parameter.line,
                   "is not a key of the configuration");
    }
  }
  finish_trial(trial, base, findings);
  return trial;
}

/// A trial of sweep.trials. Keys that it does not have keep the values beside the sweep.
Trial make_listed_trial(const YamlNode& tree, const RunConfig& base, std::size_t number,
                        Findings& findings) {
  Trial trial{.tree = tree};
  SweepConfig keys;
  const YamlNode& values = base.sweep.trials[number];
  for (const YamlNode& value : values.children) keys.parameters.push_back({.key = value.key});
  for (const YamlNode& value : values.children) {
    const std::string field = fmt::format("sweep.trials[{}].{}", number, value.key);
    if (is_shared(value.key))
      findings.add(field, value.line, "cannot differ: all trials of a run share it");
    try {
      put_value(trial, value.key, short_key(keys, value.key), value, true);
    } catch (const ConfigError& e) {
      findings.add(field, value.line, "is not a key of the configuration");
    }
  }
  finish_trial(trial, base, findings);
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

/// Leaves the trials of the sweep's share.
void keep_share(std::vector<Trial>& trials, const SweepConfig& sweep, const YamlNode& tree,
                Findings& findings) {
  const SweepShare share = parse_share(sweep.share).value_or(SweepShare{});
  const auto first = static_cast<std::size_t>(share.number - 1);
  if (first >= trials.size()) {
    findings.add("sweep.share", find_at(tree, "sweep.share")->line,
                 fmt::format("is {}, but the sweep has {} trials; use at most as many shares",
                             sweep.share, trials.size()));
    return;
  }
  std::vector<Trial> kept;
  for (std::size_t t = first; t < trials.size(); t += static_cast<std::size_t>(share.of)) {
    kept.push_back(std::move(trials[t]));
  }
  trials = std::move(kept);
}

/// What early stopping needs of all trials: steps enough, and the metric at rungs. Counts brackets.
class EarlyStoppingCheck {
 public:
  EarlyStoppingCheck(std::vector<Trial>& trials, const YamlNode& tree, Findings& findings)
      : trials_(trials), tree_(tree), findings_(findings) {
    for (const Trial& trial : trials)
      most_steps_ = std::max(most_steps_, trial.config.train.max_steps);
  }

  void run() {
    const auto& early = trials_.front().config.session.early_terminate;
    if (!early || findings_.concern("sweep.early_terminate") || findings_.concern("train")) return;
    if (early->min_iter >= most_steps_) {
      return complain("sweep.early_terminate.min_iter",
                      fmt::format("is {}, but no trial takes more than {} steps, so none would be "
                                  "compared; write a smaller number",
                                  early->min_iter, most_steps_));
    }
    check_brackets(*early);
    if (early->evaluates()) check_evaluation(early->min_iter);
  }

  /// The metric of the sweep, with early stopping or without.
  void check_metric() {
    const MetricConfig& metric = trials_.front().config.sweep.metric;
    const std::string name = to_string(metric.name);
    if (metric.name <= MetricKind::final_loss || findings_.concern("model")) return;
    for (const Trial& trial : trials_) {
      const auto names = trial.config.metrics();
      if (std::ranges::count(names, name) > 0) continue;
      const std::string other = names.empty() ? "" : " or " + names.front();
      return complain("sweep.metric.name",
                      fmt::format("is {}, which model.family {} does not have; write eval_loss{}",
                                  name, to_string(trial.config.family), other));
    }
    if (metric.name == MetricKind::accuracy && metric.goal == MetricGoal::minimize) {
      complain("sweep.metric.goal", "is minimize, but more accuracy is better; write maximize");
    }
  }

 private:
  void complain(const std::string& field, const std::string& problem) {
    const YamlNode* node = find_at(tree_, field);
    findings_.add(field, node != nullptr ? node->line : 0, problem);
  }

  /// The trials of the last possible bracket are never compared.
  void check_brackets(const EarlyTerminate& early) {
    const Rungs rungs{early.min_iter, early.eta};
    int most = 1;
    for (std::int64_t rung = rungs.min_iter; rung < most_steps_; rung = rungs.after(rung)) ++most;
    if (early.brackets > most) {
      return complain("sweep.early_terminate.brackets",
                      fmt::format("is {}, but no trial takes more than {} steps, so trials of {} "
                                  "brackets would never be compared; write at most {}, or all",
                                  early.brackets, most_steps_, early.brackets - most + 1, most));
    }
    if (early.brackets > 0) return;
    for (Trial& trial : trials_) trial.config.session.early_terminate->brackets = most;
  }

  void check_evaluation(std::int64_t first_rung) {
    const auto is_blind = [&](const Trial& trial) {
      const DataConfig& data = trial.config.data;
      return data.eval_fraction == 0 && data.eval_paths.empty() &&
             trial.config.train.max_steps > first_rung;
    };
    if (findings_.concern("data") || std::ranges::none_of(trials_, is_blind)) return;
    complain("sweep.metric.name",
             fmt::format(
                 "is {}, by which early stopping compares trials, but data.eval_fraction is "
                 "0; raise it, give data.eval_path, or write final_loss to compare training losses",
                 to_string(trials_.front().config.sweep.metric.name)));
  }

  std::vector<Trial>& trials_;
  const YamlNode& tree_;
  Findings& findings_;
  std::int64_t most_steps_ = 0;
};

}  // namespace

void check_early_stopping(std::vector<Trial>& trials, const YamlNode& tree, Findings& findings) {
  EarlyStoppingCheck(trials, tree, findings).run();
}

void check_metric(std::vector<Trial>& trials, const YamlNode& tree, Findings& findings) {
  EarlyStoppingCheck(trials, tree, findings).check_metric();
}

std::vector<Trial> expand_trials(const YamlNode& tree, Findings& findings) {
  // Without the swept values a required key may be missing, so these findings are not final.
  Findings provisional;
  YamlSchema schema(provisional);
  const auto base = read_config(tree, schema);
  check_sweep(base.sweep, findings);
  // Whatever is wrong with a parameter, the values of the others are checked too.
  SweepConfig sweep = base.sweep;
  std::erase_if(sweep.parameters, [&](const SweepParameter& parameter) {
    const std::string field = "sweep.parameters." + parameter.key;
    return provisional.concern(field) || findings.concern(field) ||
           (sweep.method == SweepMethod::grid && grid_size(parameter) == 0);
  });
  std::vector<Trial> trials;
  if (sweep.parameters.empty()) {
    trials.push_back({.name = base.name, .tree = tree, .config = read_config(tree, findings)});
  } else {
    const std::size_t num_trials = count_trials(sweep, findings);
    for (std::size_t i = 0; i < num_trials; ++i)
      trials.push_back(make_trial(tree, base, sweep, i, findings));
  }
  for (std::size_t i = 0; i < base.sweep.trials.size(); ++i)
    trials.push_back(make_listed_trial(tree, base, i, findings));
  make_names_safe(trials);
  keep_share(trials, base.sweep, tree, findings);
  if (std::ranges::none_of(trials, has_epochs)) check_early_stopping(trials, tree, findings);
  if (std::ranges::none_of(trials, has_model_file)) check_metric(trials, tree, findings);
  return trials;
}

}  // namespace spillway
