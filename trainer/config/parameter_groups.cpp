#include "trainer/config/parameter_groups.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/config_check.h"
#include "trainer/config/config_fields.h"

namespace spillway {
namespace {

bool matches(const ParameterGroup& group, const std::string& name) {
  return fnmatch(group.pattern.c_str(), name.c_str(), 0) == 0;
}

std::string field_of(std::size_t group, const char* name) {
  return fmt::format("parameter_groups[{}].{}", group, name);
}

}  // namespace

const ParameterGroup* group_of(const std::vector<ParameterGroup>& groups, const std::string& name) {
  const auto found = std::ranges::find_if(
      groups, [&](const ParameterGroup& group) { return matches(group, name); });
  return found == groups.end() ? nullptr : &*found;
}

void require_valid(const std::vector<ParameterGroup>& groups) {
  ConfigCheck check("train.");
  FieldCheck fields(check);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const ParameterGroup& group = groups[i];
    fields.field(field_of(i, "learning_rate_scale"), group.learning_rate_scale, kRate, "");
    if (group.weight_decay)
      fields.field(field_of(i, "weight_decay"), *group.weight_decay, kRate, "");
  }
  check.finish();
}

void require_matches(const std::vector<ParameterGroup>& groups, const ModelSpec& model) {
  ConfigCheck check("train.");
  const auto first = std::ranges::find_if(model.params, &ParamSpec::trainable);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto trains = [&](const ParamSpec& param) {
      return param.trainable && matches(groups[i], param.tensor_name());
    };
    check.require(std::ranges::any_of(model.params, trains), field_of(i, "pattern"),
                  fmt::format("'{}' matches no parameter that trains; names are such as {}",
                              groups[i].pattern,
                              first == model.params.end() ? "none" : first->tensor_name()));
  }
  check.finish();
}

void set_groups(Contract& contract, const std::vector<ParameterGroup>& groups) {
  nlohmann::json list = nlohmann::json::array();
  for (const ParameterGroup& group : groups) {
    auto& json = list.emplace_back(nlohmann::json{
        {"pattern", group.pattern}, {"learning_rate_scale", group.learning_rate_scale}});
    if (group.weight_decay) json["weight_decay"] = *group.weight_decay;
  }
  if (!groups.empty()) contract["train.parameter_groups"] = list.dump();
}

}  // namespace spillway
