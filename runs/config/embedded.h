#pragma once

#include "runs/config/config.h"
#include "runs/config/findings.h"
#include "runs/config/yaml_node.h"
#include "spillway/session_config.h"
#include "spillway/trial_config.h"

/// Parts of a configuration, for programs that make models and data themselves. Keys, checks and
/// messages are those of a whole document.
namespace spillway {

/// `devices`, `numerics`, `host_memory`, `activation_share`, `offload_path`, `scheduling` and
/// `sweep` of a document that has no other keys. Adds problems to `findings`.
SessionConfig read_session(const YamlNode& tree, Findings& findings);

/// Likewise `hosts` alone.
HostsConfig read_hosts(const YamlNode& tree, Findings& findings);

/// How a trial trains: `seed`, `train`, `scheduling.order` and `checkpoint`, likewise.
struct Training {
  TrainConfig train{.virtual_nodes = 0};
  CheckpointConfig checkpoint;  ///< but for its folder
  std::string strategy;         ///< file with train.strategy; empty: none
};
Training read_training(const YamlNode& tree, Findings& findings);

/// The section `model` of a document, likewise: its values in the result count.
RunConfig read_model(const YamlNode& section, Findings& findings);

}  // namespace spillway
