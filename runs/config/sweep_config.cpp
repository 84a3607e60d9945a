#include "runs/config/sweep_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

#include "runs/config/run_fields.h"
#include "runs/config/sweep_values.h"

namespace spillway {
namespace {

using Shape = Distribution::Shape;

constexpr std::array<const char*, 9> kKeys{
    "distribution", "value", "values", "probabilities", "min", "max", "mu", "sigma", "q"};

bool uses(const Distribution& distribution, std::string_view key) {
  if (key == "value") return distribution.shape == Shape::constant;
  if (key == "values" || key == "probabilities") return distribution.shape == Shape::categorical;
  if (key == "min" || key == "max") return distribution.is_bounded();
  if (key == "mu" || key == "sigma") return distribution.is_normal();
  if (key == "q") return distribution.quantized;
  return true;
}

Distribution distribution_named(std::string_view name) {
  return *std::ranges::find(kDistributions, name, &Distribution::name);
}

/// Reads one entry of `sweep.parameters`.
class ParameterReader {
 public:
  ParameterReader(const YamlNode& entry, YamlSchema& schema)
      : entry_(entry),
        path_("sweep.parameters." + entry.key),
        findings_(schema.findings()),
        reader_(schema, &entry, path_) {}

  SweepParameter read() {
    for (const char* key : kKeys) reader_.raw(key);
    reader_.finish();
    parameter_ = {.key = entry_.key, .line = entry_.line};
    const auto distribution = read_distribution();
    if (!distribution) return parameter_;
    parameter_.distribution = *distribution;
    for (const char* key : kKeys) {
      if (has(key) && !uses(*distribution, key))
        complain(key, fmt::format("cannot be used with the distribution {}; remove it",
                                  distribution->name));
    }
    if (distribution->shape == Shape::constant) read_value();
    if (distribution->shape == Shape::categorical) read_values();
    if (distribution->is_bounded()) read_bounds();
    if (distribution->is_normal()) read_moments();
    if (distribution->quantized) read_quantum();
    return parameter_;
  }

 private:
  bool has(const char* key) const { return entry_.find(key) != nullptr; }
  void complain(const std::string& key, const std::string& problem) {
    findings_.add(path_ + "." + key, entry_.find(key)->line, problem);
  }

  /// As written, or else by the other keys.
  std::optional<Distribution> read_distribution() {
    if (const YamlNode* name = entry_.find("distribution")) {
      std::vector<std::string> names;
      for (const auto& known : kDistributions) names.emplace_back(known.name);
      if (std::ranges::find(names, name->text) != names.end())
        return distribution_named(name->text);
      complain("distribution",
               fmt::format("is '{}', must be {}", name->text, describe_choice(names)));
      return std::nullopt;
    }
    if (has("value")) return distribution_named("constant");
    if (has("values")) return distribution_named("categorical");
    if (has("min") || has("max")) {
      const bool whole = has("min") && is_integer(entry_.find("min")->text) && has("max") &&
                         is_integer(entry_.find("max")->text);
      return distribution_named(whole ? "int_uniform" : "uniform");
    }
    if (!has("mu") && !has("sigma") && !has("q")) return distribution_named("categorical");
    reader_.require_key("distribution", "write one, such as normal");
    return std::nullopt;
  }

  void read_value() {
    reader_.require_key("value", "write it, such as {value: 1e-3}");
    if (has("value")) parameter_.values = {*entry_.find("value")};
  }

  void read_values() {
    reader_.require_key("values", "list them, such as {values: [1e-3, 1e-2]}");
    if (!has("values")) return;
    const YamlNode& values = *entry_.find("values");
    if (values.kind == YamlNode::Kind::list) parameter_.values = values.children;
    if (parameter_.values.empty()) complain("values", "must be a list of at least one value");
    read_probabilities();
  }

  void read_probabilities() {
    constexpr double kTolerance = 1e-6;
    auto& probabilities = parameter_.probabilities;
    reader_.field("probabilities", probabilities, NumberRange{.min = 0});
    if (findings_.concern(path_ + ".probabilities") || !has("probabilities")) return;
    const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
    if (probabilities.size() != parameter_.values.size()) {
      complain("probabilities", fmt::format("are {} for {} values; write one for each",
                                            probabilities.size(), parameter_.values.size()));
    } else if (std::abs(sum - 1) > kTolerance) {
      complain("probabilities", fmt::format("add up to {}, must add up to 1", sum));
    }
  }

  /// Integers stay below 2^53, where every one is a double.
  void read_bound(const char* key, const char* remedy, double& bound) {
    constexpr std::int64_t kMost = std::int64_t{1} << 53;
    reader_.require_key(key, remedy);
    if (parameter_.distribution.shape == Shape::int_uniform) {
      auto whole = static_cast<std::int64_t>(bound);
      reader_.field(key, whole, IntRange{-kMost, kMost});
      bound = static_cast<double>(whole);
    } else {
      reader_.field(key, bound, NumberRange{});
    }
  }

  void read_bounds() {
    read_bound("min", "write the least value", parameter_.min);
    read_bound("max", "write the largest value", parameter_.max);
    if (findings_.concern(path_ + ".min") || findings_.concern(path_ + ".max")) return;
    const double min = parameter_.min, max = parameter_.max;
    if (max < min)
      complain("max", fmt::format("is {}, must be at least min, which is {}", number_text(max),
                                  number_text(min)));
    if (parameter_.distribution.is_log_uniform() && min <= 0) {
      complain("min", fmt::format("is {}, must be above 0", number_text(min)));
    }
  }

  void read_moments() {
    reader_.field("mu", parameter_.mu, NumberRange{});
    reader_.field("sigma", parameter_.sigma, NumberRange{.min = 0});
  }

  void read_quantum() {
    reader_.field("q", parameter_.q, kAboveZero);
    if (!parameter_.distribution.is_bounded() || findings_.concern(path_)) return;
    const auto [first, last] = multiples(parameter_);
    if (first > last)
      findings_.add(path_, entry_.line, "has no multiple of q from min to max; write a smaller q");
  }

  const YamlNode& entry_;
  std::string path_;
  Findings& findings_;
  YamlReader reader_;
  SweepParameter parameter_;
};

/// Checks that a grid is possible. `entries` are the parameters as written.
void check_grid(const SweepConfig& sweep, const YamlNode& entries, Findings& findings) {
  for (const auto& parameter : sweep.parameters) {
    const std::string path = "sweep.parameters." + parameter.key;
    if (findings.concern(path)) continue;
    if (grid_size(parameter) == 0)
      findings.add(path, parameter.line,
                   fmt::format("is continuous ({}); write values, or use method: random",
                               parameter.distribution.name));
    if (const auto* probabilities = entries.find(parameter.key)->find("probabilities"))
      findings.add(path + ".probabilities", probabilities->line,
                   "cannot be used in a grid; remove them, or use method: random");
  }
}

void read_parameters(const YamlNode& parameters, YamlSchema& schema, SweepConfig& config) {
  config.line = parameters.line;
  if (parameters.kind == YamlNode::Kind::null) return;
  if (parameters.kind != YamlNode::Kind::map) {
    schema.findings().add("sweep.parameters", parameters.line,
                          "must be a mapping of keys to their values, such as "
                          "{train.learning_rate: {values: [1e-3, 1e-2]}}");
    return;
  }
  for (const auto& entry : parameters.children)
    config.parameters.push_back(ParameterReader(entry, schema).read());
}

void read_early_terminate(YamlReader& sweep, const SweepConfig& config,
                          std::optional<EarlyTerminate>& early_terminate) {
  const auto* node = sweep.raw("early_terminate");
  const bool is_given = node != nullptr && node->kind != YamlNode::Kind::null;
  EarlyTerminate early{.metric = config.metric.name, .goal = config.metric.goal};
  sweep.section("early_terminate", [&](YamlReader& reader) {
    visit_early_terminate(early, reader);
    if (!is_given) return;
    reader.require_key("type", "write one, such as type: hyperband");
    reader.require_key("min_iter", "write after how many steps trials are compared first");
  });
  if (early.type == EarlyTerminateKind::pbt) early.seed = config.seed;
  if (is_given) early_terminate = early;
}

/// Trials that are listed one by one.
void read_trial_list(YamlReader& sweep, SweepConfig& config, Findings& findings) {
  const auto* trials = sweep.raw("trials");
  if (trials == nullptr || trials->kind == YamlNode::Kind::null) return;
  const auto is_map = [](const YamlNode& trial) {
    return trial.kind == YamlNode::Kind::map && !trial.children.empty();
  };
  if (trials->kind == YamlNode::Kind::list && std::ranges::all_of(trials->children, is_map)) {
    config.trials = trials->children;
  } else {
    findings.add("sweep.trials", trials->line,
                 "must be a list of mappings of keys to values, such as "
                 "[{train.learning_rate: 1e-3}]");
  }
}

}  // namespace

std::optional<SweepShare> parse_share(const std::string& text) {
  SweepShare share;
  const char* const end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, share.number);
  if (number.ec != std::errc() || number.ptr == end || *number.ptr != '/') return std::nullopt;
  const auto of = std::from_chars(number.ptr + 1, end, share.of);
  if (of.ec != std::errc() || of.ptr != end) return std::nullopt;
  if (share.number < 1 || share.number > share.of) return std::nullopt;
  return share;
}

static void check_share(YamlReader& sweep, SweepConfig& config, bool stops_early,
                        Findings& findings) {
  const YamlNode* node = sweep.raw("share");
  if (node == nullptr) return;
  const auto share = parse_share(config.share);
  if (!share) {
    findings.add(
        "sweep.share", node->line,
        fmt::format("is '{}', must be the number of a share and the number of shares, such "
                    "as 1/4",
                    config.share));
    config.share = "1/1";
  } else if (share->of > 1 && stops_early) {
    findings.add("sweep.share", node->line,
                 "cannot be used with sweep.early_terminate, which compares all trials; remove one "
                 "of them");
  }
}

void read_sweep(YamlReader& sweep, YamlSchema& schema, SweepConfig& config,
                std::optional<EarlyTerminate>& early_terminate) {
  Findings& findings = schema.findings();
  visit_sweep(config, sweep);
  read_early_terminate(sweep, config, early_terminate);
  check_share(sweep, config, early_terminate.has_value(), findings);
  read_trial_list(sweep, config, findings);
  const auto* parameters = sweep.raw("parameters");
  if (parameters != nullptr) read_parameters(*parameters, schema, config);
  if (config.method == SweepMethod::random) {
    const char* remedy = "random needs the number of trials";
    sweep.require_key("run_cap", remedy);
    const auto* run_cap = sweep.raw("run_cap");
    if (run_cap != nullptr && config.run_cap == 0 && !findings.concern("sweep.run_cap"))
      findings.add("sweep.run_cap", run_cap->line, fmt::format("is 0; {}", remedy));
  } else if (parameters != nullptr && !findings.concern("sweep.method")) {
    check_grid(config, *parameters, findings);
  }
}

}  // namespace spillway
