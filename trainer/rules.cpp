#include "trainer/rules.h"

#include <string>

namespace spillway {

std::vector<std::shared_ptr<const Heuristic>> make_rules(const TrainConfig& train) {
  std::vector<std::shared_ptr<const Heuristic>> rules;
  for (const AutoscaleRule& rule : train.autoscale) {
    std::string field = "train.autoscale";
    if (train.autoscale.size() > 1) field += "[" + std::to_string(rules.size()) + "]";
    rules.push_back(make_heuristic(rule.rule, rule.params, field));
  }
  return rules;
}

}  // namespace spillway
