#include "trainer/trial/journal_row.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "trainer/storage/json_number.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::optional<double> number_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

int count_of(const Json& value) {
  const std::int64_t number = integer_of(value);
  if (std::in_range<int>(number)) return static_cast<int>(number);
  throw Json::out_of_range::create(401, "a smaller number is expected", &value);
}

/// Throws what `read` throws; an Error that names the trial for text that is not as expected.
template <typename Read>
auto read_text(const JournalTrial& trial, const char* what, const Read& read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    throw Error(fmt::format(
        "the journal has an invalid {} of trial '{}' ({}); use the Spillway that wrote it", what,
        trial.client_id, error.what()));
  }
}

}  // namespace

std::string result_text(const TrialResult& result) {
  Json json{{"parameters", result.parameters},
            {"num_shards", result.num_shards},
            {"virtual_nodes", result.virtual_nodes},
            {"lanes", result.lanes},
            {"order", result.order},
            {"steps", result.steps},
            {"first_loss", or_null(result.first_loss)},
            {"final_loss", or_null(result.final_loss)},
            {"eval_loss", or_null(result.eval_loss)},
            {"tokens_per_s", result.tokens_per_s},
            {"weights_xxh3", result.weights_xxh3},
            {"rung_losses", result.rung_losses},
            {"training_state_bytes", result.training_state_bytes}};
  if (!result.metrics.empty()) json["metrics"] = result.metrics;
  return json.dump();
}

TrialState state_of(const JournalTrial& trial) {
  if (const auto state = value_named<TrialState>(trial.state)) return *state;
  throw Error(fmt::format("the journal has trial '{}' in the unknown state '{}'", trial.client_id,
                          trial.state));
}

TrialResult result_of(const JournalTrial& trial) {
  TrialResult result{.name = trial.client_id, .state = state_of(trial), .reason = trial.reason};
  if (trial.result.empty()) return result;
  return read_text(trial, "result", [&] {
    const Json json = Json::parse(trial.result);
    result.parameters = integer_of(json.at("parameters"));
    result.num_shards = count_of(json.at("num_shards"));
    result.virtual_nodes = count_of(json.at("virtual_nodes"));
    result.lanes = count_of(json.at("lanes"));
    result.order = json.at("order");
    result.steps = integer_of(json.at("steps"));
    result.first_loss = number_at(json, "first_loss");
    result.final_loss = number_at(json, "final_loss");
    result.eval_loss = number_at(json, "eval_loss");
    result.tokens_per_s = number_of(json.at("tokens_per_s"));
    result.weights_xxh3 = json.at("weights_xxh3");
    result.training_state_bytes = static_cast<Bytes>(integer_of(json.at("training_state_bytes")));
    if (json.contains("metrics")) result.metrics = metrics_of(json.at("metrics"));
    if (json.contains("rung_losses")) result.rung_losses = pairs_of(json.at("rung_losses"));
    return result;
  });
}

std::string contract_text(const Contract& contract) { return Json(contract).dump(); }

Contract contract_in(const JournalTrial& trial) {
  return read_text(trial, "contract", [&] { return Json::parse(trial.config).get<Contract>(); });
}

}  // namespace spillway
