#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "trainer/session/session_impl.h"
#include "trainer/session/trial_contract.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::optional<double> number_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

/// Without the lists of losses.
std::string to_text(const TrialResult& result) {
  return Json{{"parameters", result.parameters},
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
              {"training_state_bytes", result.training_state_bytes}}
      .dump();
}

TrialState state_of(const JournalTrial& trial) {
  if (const auto state = trial_state(trial.state)) return *state;
  throw Error("the journal says of trial '" + trial.client_id + "' that it is '" + trial.state +
              "', which is no state of a trial");
}

TrialResult result_of(const JournalTrial& trial) {
  TrialResult result{.name = trial.client_id, .state = state_of(trial), .reason = trial.reason};
  if (trial.result.empty()) return result;
  const Json json = Json::parse(trial.result);
  result.parameters = json.at("parameters");
  result.num_shards = json.at("num_shards");
  result.virtual_nodes = json.at("virtual_nodes");
  result.lanes = json.at("lanes");
  result.order = json.at("order");
  result.steps = json.at("steps");
  result.first_loss = number_at(json, "first_loss");
  result.final_loss = number_at(json, "final_loss");
  result.eval_loss = number_at(json, "eval_loss");
  result.tokens_per_s = json.at("tokens_per_s");
  result.weights_xxh3 = json.at("weights_xxh3");
  result.training_state_bytes = json.at("training_state_bytes");
  result.rung_losses = json.value("rung_losses", result.rung_losses);
  return result;
}

/// Of a client's trials, no two may be called the same.
void require_none(const std::string& client_id, const std::vector<ContractDifference>& different) {
  if (different.empty()) return;
  throw ConfigError("client_id", 0,
                    "'" + client_id + "' was submitted before with another contract:" +
                        explain(different) + ", or submit it under another id");
}

}  // namespace

const Contract& Session::Impl::contract(SessionTrial& trial) {
  if (trial.contract.empty()) {
    trial.contract =
        contract_of(trial.config, trial.model->spec, xxh3_of_data(trial), devices.exact_kind());
    if (config.early_terminate) {
      trial.contract["sweep.early_terminate"] =
          "min_iter " + std::to_string(config.early_terminate->min_iter) + ", eta " +
          std::to_string(config.early_terminate->eta);
    }
  }
  return trial.contract;
}

/// Of this session.
std::optional<JobId> Session::Impl::find_trial(SessionTrial& trial) {
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (trials[t]->config.client_id != trial.config.client_id) continue;
    require_none(trial.config.client_id, differences(contract(*trials[t]), contract(trial)));
    return JobId(t);
  }
  return std::nullopt;
}

/// Since it was submitted to the journal.
std::vector<ContractDifference> Session::Impl::changes(SessionTrial& trial) {
  const auto known = journal->find(trial.config.client_id);
  if (!known) return {};
  return differences(Json::parse(known->config).get<Contract>(), contract(trial));
}

/// What sessions before this one have made of the trial: ended, it is that; else it goes on.
void Session::Impl::recall(SessionTrial& trial) {
  const auto known = journal->find(trial.config.client_id);
  if (!known) return;
  require_none(known->client_id, changes(trial));
  trial.config.checkpoint.resume = true;
  const TrialState state = state_of(*known);
  if (!is_final(state)) return;
  trial.result = result_of(*known);
  trial.result.name = trial.config.name;
}

void Session::Impl::enter(SessionTrial& trial) {
  const std::string& id = trial.config.client_id;
  require_none(id, changes(trial));
  journal->submit(id, Json(contract(trial)).dump());
}

/// Under mutex.
void Session::Impl::note_state(const SessionTrial& trial) {
  if (!journal) return;
  const TrialResult& result = trial.result;
  journal->note([id = trial.config.client_id, state = result.state, reason = result.reason,
                 text = trial.ended() ? to_text(result) : ""](Journal& file) {
    if (!text.empty()) file.set_result(id, text);
    file.set_state(id, to_string(state), reason);
  });
}

void Session::keep_journal(const std::filesystem::path& folder) { keep_journal(RunLock(folder)); }

void Session::keep_journal(RunLock lock) {
  Impl& impl = *impl_;
  impl.journal.emplace(std::move(lock), impl.writer);
  for (const auto& trial : impl.trials) impl.enter(*trial);
}

/// Of all its trials, as submitted.
std::vector<TrialResult> Session::Impl::journal_results() const {
  std::vector<TrialResult> results;
  if (!journal) return results;
  for (const JournalTrial& trial : journal->trials()) results.push_back(result_of(trial));
  return results;
}

std::vector<TrialResult> Session::journal() const { return impl_->journal_results(); }

}  // namespace spillway
