#include "runs/config/embedded.h"

#include "runs/config/run_fields.h"
#include "runs/config/yaml_reader.h"

namespace spillway {
namespace {

/// Reads a document whose keys are those that `visit` visits.
template <typename Visit>
RunConfig read(const YamlNode& tree, Findings& findings, const Visit& visit) {
  RunConfig config;
  YamlSchema schema(findings);
  YamlReader root(schema, &tree, "");
  visit(config, root, schema);
  root.finish();
  schema.report_unknown();
  return config;
}

}  // namespace

SessionConfig read_session(const YamlNode& tree, Findings& findings) {
  const auto visit = [](RunConfig& config, YamlReader& root, YamlSchema& schema) {
    visit_resources(config.session, root);
    root.section("scheduling", [&](YamlReader& v) { visit_scheduling(config, v); });
    root.section("hosts", [&](YamlReader& v) { visit_hosts(config.session.hosts, v); });
    root.section("sweep", [&](YamlReader& v) {
      read_sweep(v, schema, config.sweep, config.session.early_terminate);
    });
  };
  return read(tree, findings, visit).session;
}

HostsConfig read_hosts(const YamlNode& tree, Findings& findings) {
  const auto visit = [](RunConfig& config, YamlReader& root, YamlSchema&) {
    root.section("hosts", [&](YamlReader& v) { visit_hosts(config.session.hosts, v); });
  };
  return read(tree, findings, visit).session.hosts;
}

Training read_training(const YamlNode& tree, Findings& findings) {
  const auto visit = [](RunConfig& config, YamlReader& root, YamlSchema&) {
    visit_seed(config.train, root);
    root.section("train", [&](YamlReader& v) {
      visit_train(config.train, v);
      visit_strategy(config, v);
    });
    root.section("scheduling", [&](YamlReader& v) { visit_order(config.train, v); });
    root.section("checkpoint", [&](YamlReader& v) { visit_checkpoint(config.checkpoint, v); });
  };
  RunConfig config = read(tree, findings, visit);
  return {config.train, config.checkpoint, config.strategy};
}

RunConfig read_model(const YamlNode& section, Findings& findings) {
  return read(section, findings,
              [](RunConfig& config, YamlReader& root, YamlSchema&) { visit_model(config, root); });
}

}  // namespace spillway
