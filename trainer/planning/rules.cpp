#include "trainer/planning/rules.h"

#include <fmt/format.h>

#include <string>

#include "core/base/config_check.h"

namespace spillway {

std::vector<std::shared_ptr<const Heuristic>> make_rules(const TrainConfig& train) {
  ConfigCheck check;
  std::vector<std::shared_ptr<const Heuristic>> rules;
  for (std::size_t r = 0; r < train.autoscale.size(); ++r) {
    const std::string index = train.autoscale.size() > 1 ? fmt::format("[{}]", r) : "";
    const auto& [kind, params] = train.autoscale[r];
    check.run([&] { rules.push_back(make_heuristic(kind, params, "train.autoscale" + index)); });
  }
  check.finish();
  return rules;
}

}  // namespace spillway
