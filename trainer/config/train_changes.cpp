#include "trainer/config/train_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/config_check.h"
#include "spillway/error.h"
#include "trainer/config/config_fields.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

/// Calls `visit(name, value, range)` for each value.
template <typename Values, typename Visit>
void visit_values(Values& values, const Visit& visit) {
  visit("learning_rate", values.learning_rate, kRate);
  visit("weight_decay", values.weight_decay, kRate);
  visit("max_grad_norm", values.max_grad_norm, kMaxGradNorm);
}

}  // namespace

void require_valid(const TrainValues& values, const std::string& prefix) {
  ConfigCheck check(prefix);
  FieldCheck fields(check);
  visit_values(values, [&](const char* name, const auto& value, const NumberRange& range) {
    if (value) fields.field(name, *value, range, "");
  });
  check.finish();
}

std::string to_string(const TrainValues& values) {
  std::string text;
  visit_values(values, [&](const char* name, const auto& value, const NumberRange&) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
  });
  return text;
}

void set_changes(Contract& contract, const std::vector<TrainChange>& changes) {
  Json list = Json::array();
  for (const TrainChange& change : changes) {
    Json json{{"step", change.step}};
    visit_values(change.values, [&](const char* name, const auto& value, const NumberRange&) {
      if (value) json[name] = *value;
    });
    list.push_back(std::move(json));
  }
  contract.erase(kChanges);
  if (!changes.empty()) contract[kChanges] = list.dump();
}

std::vector<TrainChange> changes_in(const Contract& contract) {
  std::vector<TrainChange> changes;
  const auto field = contract.find(kChanges);
  if (field == contract.end()) return changes;
  try {
    for (const Json& json : Json::parse(field->second)) {
      TrainChange& change = changes.emplace_back();
      change.step = json.at("step");
      visit_values(change.values, [&](const char* name, auto& value, const NumberRange&) {
        if (json.contains(name)) value = json.at(name).get<double>();
      });
    }
  } catch (const Json::exception& error) {
    throw CorruptData(kChanges, error.what());
  }
  return changes;
}

bool begins_with(const std::vector<TrainChange>& longer, const std::vector<TrainChange>& shorter) {
  return longer.size() >= shorter.size() &&
         std::equal(shorter.begin(), shorter.end(), longer.begin());
}

}  // namespace spillway
