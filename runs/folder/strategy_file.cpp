#include "runs/folder/strategy_file.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "runs/config/findings.h"
#include "runs/config/yaml_node.h"
#include "runs/config/yaml_reader.h"
#include "spillway/error.h"
#include "trainer/storage/atomic_file.h"

namespace spillway {
namespace {

constexpr IntRange kVersion{1, 1}, kNumber{0, 1 << 16}, kMany{0, 1 << 30};
constexpr SizeRange kSize{0};

void read_placement(LayerPlacement& placement, YamlReader& v) {
  v.require_key("layers", "name layers, such as h.*, or \"*\" for all");
  v.require_key("tracks", "name tracks, such as [0, 1]");
  v.field("layers", placement.layers, TextList{});
  v.field("tracks", placement.tracks, kNumber);
  v.field("pieces", placement.pieces, kNumber);
  v.field("set", placement.set, kNumber);
}

void read_keys(TrialsStrategy& each, YamlReader& v) {
  StrategyConfig& strategy = each.strategy;
  v.field("devices", each.devices, kNumber);
  v.field("num_layers", strategy.num_layers, kMany);
  v.section("order", [&](YamlReader& order) {
    order.field("first", strategy.first, kAny);
    order.field("chunk", strategy.chunk, kNumber);
    order.field("window", strategy.window, kNumber);
    order.field("graphs", strategy.graphs, kAny);
    order.field("stage_weights", strategy.stage_weights, kSize);
  });
  v.require_key("place", "list the layers and their tracks");
  v.list("place", strategy.place, "[{layers: \"*\", tracks: [0, 1]}]", "", read_placement);
}

/// A strategy for all trials has the pattern "*".
std::vector<TrialsStrategy> read(const YamlNode& tree) {
  std::vector<TrialsStrategy> strategies;
  int version = 1;
  Findings findings;
  YamlSchema schema(findings);
  YamlReader root(schema, &tree, "");
  root.require_key("spillway_strategy", "write spillway_strategy: 1, the version of the format");
  root.field("spillway_strategy", version, kVersion);
  const auto read_entry = [](TrialsStrategy& each, YamlReader& v) {
    v.require_key("trials", "name trials, such as hidden_size=128*, or \"*\" for all");
    v.field("trials", each.trials, TextList{});
    read_keys(each, v);
  };
  root.list("strategies", strategies, "[{trials: \"*\", place: [...]}]", "", read_entry);
  if (root.raw("strategies") == nullptr) {
    read_keys(strategies.emplace_back(TrialsStrategy{.trials = {"*"}}), root);
  }
  root.finish();
  schema.report_unknown();
  findings.throw_if_any();
  return strategies;
}

/// Throws ConfigError (`train.strategy`).
std::vector<TrialsStrategy> read(const std::filesystem::path& file) {
  try {
    return read(read_yaml_file(file));
  } catch (const ConfigError& error) {
    const std::string line = error.line > 0 ? fmt::format(", line {}", error.line) : "";
    const std::string field = error.field.empty() ? "" : error.field + " ";
    throw ConfigError("train.strategy", 0,
                      fmt::format("'{}'{}: {}{}", file.string(), line, field, error.problem));
  } catch (const IoError& error) {
    throw ConfigError("train.strategy", 0, error.what());
  }
}

/// JSON is YAML, and it quotes patterns such as "*".
template <typename Value>
std::string text_of(const Value& value) {
  return nlohmann::json(value).dump();
}

/// The keys of a strategy; each line begins with `indent`.
std::string text_of(const TrialsStrategy& each, const std::string& indent) {
  const StrategyConfig& strategy = each.strategy;
  std::string text;
  if (each.devices > 0) text = fmt::format("{}devices: {}\n", indent, each.devices);
  if (strategy.num_layers > 0) {
    text += fmt::format("{}num_layers: {}\n", indent, strategy.num_layers);
  }
  text += fmt::format("{}order: {{first: {}, chunk: {}, window: {}", indent,
                      to_string(strategy.first), strategy.chunk, strategy.window);
  if (strategy.graphs != GraphChoice::keep) {
    text += fmt::format(", graphs: {}", to_string(strategy.graphs));
  }
  if (strategy.stage_weights > 0) {
    text += fmt::format(", stage_weights: {}", to_text(strategy.stage_weights, kSize));
  }
  text += fmt::format("}}\n{}place:\n", indent);
  for (const LayerPlacement& placement : strategy.place) {
    text += fmt::format("{}  - {{layers: {}, tracks: {}", indent, text_of(placement.layers),
                        text_of(placement.tracks));
    if (placement.pieces != 1) text += fmt::format(", pieces: {}", placement.pieces);
    if (placement.set != 0) text += fmt::format(", set: {}", placement.set);
    text += "}\n";
  }
  return text;
}

}  // namespace

void read_strategies(const std::filesystem::path& file, const std::string& trial,
                     TrainConfig& train) {
  train.strategy.reset();
  train.strategies.clear();
  bool is_by_devices = false;
  for (TrialsStrategy& each : read(file)) {
    is_by_devices |= each.devices > 0;
    const bool is_meant = std::ranges::any_of(each.trials, [&](const std::string& pattern) {
      return pattern == trial || fnmatch(pattern.c_str(), trial.c_str(), 0) == 0;
    });
    if (!is_meant) continue;
    if (each.devices > 0) {
      train.strategies.try_emplace(each.devices, std::move(each.strategy));
    } else if (train.strategies.empty()) {
      train.strategy = std::move(each.strategy);
      return;
    }
  }
  if (is_by_devices) return;
  throw ConfigError("train.strategy", 0,
                    fmt::format("'{}' has no strategy for trial {}; name it in the `trials` of one",
                                file.string(), trial));
}

void write_strategies(const std::filesystem::path& file,
                      const std::vector<TrialsStrategy>& strategies, const std::string& comment,
                      const std::string& field) {
  std::string text = fmt::format("# {}\nspillway_strategy: 1\n", comment);
  const TrialsStrategy& first = strategies.front();
  if (strategies.size() == 1 && first.trials == std::vector<std::string>{"*"}) {
    text += text_of(first, "");
  } else {
    text += "strategies:\n";
    for (const TrialsStrategy& each : strategies) {
      text += fmt::format("  - trials: {}\n{}", text_of(each.trials), text_of(each, "    "));
    }
  }
  try {
    AtomicFile written(file);
    written.write(text);
    written.commit();
  } catch (const IoError& error) {
    throw ConfigError(field, 0, error.what());
  }
}

}  // namespace spillway
