#include "runs/folder/strategy_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runs/config/findings.h"
#include "runs/config/yaml_node.h"
#include "runs/config/yaml_reader.h"
#include "spillway/error.h"
#include "trainer/storage/atomic_file.h"

namespace spillway {
namespace {

constexpr IntRange kVersion{1, 1}, kNumber{0, 1 << 16};

void read_placement(LayerPlacement& placement, YamlReader& v) {
  v.require_key("layers", "name layers, such as h.*, or \"*\" for all");
  v.require_key("tracks", "name tracks, such as [0, 1]");
  v.field("layers", placement.layers, TextList{});
  v.field("tracks", placement.tracks, kNumber);
  v.field("pieces", placement.pieces, kNumber);
  v.field("set", placement.set, kNumber);
}

StrategyConfig read(const YamlNode& tree) {
  StrategyConfig strategy;
  int version = 1;
  Findings findings;
  YamlSchema schema(findings);
  YamlReader root(schema, &tree, "");
  root.require_key("spillway_strategy", "write spillway_strategy: 1, the version of the format");
  root.field("spillway_strategy", version, kVersion);
  root.section("order", [&](YamlReader& order) {
    order.field("first", strategy.first, kAny);
    order.field("chunk", strategy.chunk, kNumber);
    order.field("window", strategy.window, kNumber);
    order.field("graphs", strategy.graphs, kAny);
  });
  root.require_key("place", "list the layers and their tracks");
  root.list("place", strategy.place, "[{layers: \"*\", tracks: [0, 1]}]", "", read_placement);
  root.finish();
  schema.report_unknown();
  findings.throw_if_any();
  return strategy;
}

/// JSON is YAML, and it quotes patterns such as "*".
template <typename Value>
std::string text_of(const Value& value) {
  return nlohmann::json(value).dump();
}

}  // namespace

StrategyConfig read_strategy(const std::filesystem::path& file) {
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

void write_strategy(const std::filesystem::path& path, const StrategyConfig& strategy,
                    const std::string& comment, const std::string& field) {
  std::string text = fmt::format("# {}\nspillway_strategy: 1\n", comment);
  text += fmt::format("order: {{first: {}, chunk: {}, window: {}", to_string(strategy.first),
                      strategy.chunk, strategy.window);
  if (strategy.graphs != GraphChoice::keep) {
    text += fmt::format(", graphs: {}", to_string(strategy.graphs));
  }
  text += "}\nplace:\n";
  for (const LayerPlacement& placement : strategy.place) {
    text += fmt::format("  - {{layers: {}, tracks: {}", text_of(placement.layers),
                        text_of(placement.tracks));
    if (placement.pieces != 1) text += fmt::format(", pieces: {}", placement.pieces);
    if (placement.set != 0) text += fmt::format(", set: {}", placement.set);
    text += "}\n";
  }
  try {
    AtomicFile file(path);
    file.write(text);
    file.commit();
  } catch (const IoError& error) {
    throw ConfigError(field, 0, error.what());
  }
}

}  // namespace spillway
