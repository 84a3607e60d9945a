#include "apps/commands/answer_requests.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "apps/commands/trial_call.h"
#include "runs/folder/growth.h"
#include "runs/folder/prepare.h"
#include "runs/log/event_json.h"
#include "spillway/error.h"

namespace spillway {
namespace {

std::optional<JobId> job_of(std::size_t number, const Place& place) {
  const auto found = std::ranges::find(place.trials, number);
  if (found == place.trials.end()) return std::nullopt;
  return JobId(static_cast<std::size_t>(found - place.trials.begin()));
}

}  // namespace

RequestServer::RequestServer(Session& session, std::vector<Trial>& trials, Place& place,
                             const OutputFolder& folder, EventLog& log, MetricsFiles& metrics)
    : session_(session),
      trials_(trials),
      place_(place),
      folder_(folder),
      log_(log),
      metrics_(metrics),
      inbox_(folder.path()) {}

bool RequestServer::serve() {
  may_go_on_ = false;
  for (const RequestInbox::Request& request : inbox_.take()) {
    Json reply;
    try {
      reply = {{"text", answer(request.content)}};
    } catch (const IoError&) {
      throw;  // the call may be half done; the next owner reads what is durable
    } catch (const std::exception& error) {  // also from a request of the wrong form
      reply = {{"error", error.what()}};
    }
    inbox_.reply(request, reply);
  }
  return may_go_on_;
}

std::string RequestServer::answer(const Json& request) {
  if (!request.is_object()) throw Error("the request is damaged");
  if (request.value("call", "") != "add") return answer_call(request);
  return answer_add(request.value("values", std::vector<std::string>{}));
}

std::string RequestServer::answer_call(const Json& request) {
  const CallForTrial call = call_of(request);
  const Json event = event_of(call, log_.run());
  const auto job = job_of(event.at("trial"), place_);
  const std::string name = log_.run().trials.at(event.at("trial")).result.name;
  const bool is_live = job && !has_ended(session_.result().trials[job->index()].state);
  if (call.call == TrialCall::none && !is_live) {
    throw Error(
        fmt::format("trial '{}' takes no part in this run any more; once the run has ended, "
                    "'spillway resume {} --trial' resumes it",
                    name, folder_.path().string()));
  }
  log_.add(event);
  log_.sync();
  switch (call.call) {
    case TrialCall::stop:
      if (is_live) session_.stop(*job);
      return fmt::format("trial {} ends after its open step", name);
    case TrialCall::pause:
      if (is_live) session_.pause(*job);
      return fmt::format("trial {} pauses after its open step", name);
    case TrialCall::none:
      session_.resume(*job);
      may_go_on_ = true;
      return fmt::format("trial {} goes on", name);
    case TrialCall::extend:
      break;
  }
  return fmt::format(
      "trial {} will have {} steps; once this run has ended, 'spillway resume {}' "
      "trains them",
      name, event.at("max_steps").get<std::int64_t>(), folder_.path().string());
}

std::string RequestServer::answer_add(const std::vector<std::string>& values) {
  Findings findings;
  const RunConfig stored = stored_config(folder_).value();
  auto given = trials_with(folder_, values, findings);
  findings.throw_if_any();
  const RunConfig grown = given.front().config;
  given = match_trials(std::move(given), log_.run());
  extend_trials(given, log_.run(), stored, findings);
  const std::vector<Trial> added(given.begin() + std::ssize(log_.run().trials), given.end());
  auto configs = run_configs(added, folder_, findings);
  findings.throw_if_any();
  const std::size_t first = trials_.size();
  std::vector<std::string> names;
  for (std::size_t t = 0; t < added.size(); ++t) {
    folder_.add_trials({added[t].name});
    session_.submit(std::move(configs[t]));
    place_.trials.push_back(log_.run().trials.size() + t);
    trials_.push_back(added[t]);
    names.push_back(added[t].name);
  }
  store_growth(folder_, stored, grown);
  const Json event = added_event(trials_, first, session_);
  log_.add(event);
  log_.sync();
  metrics_.take(event);
  may_go_on_ = true;
  return fmt::format("trial {} trains from now on", fmt::join(names, ", "));
}

}  // namespace spillway
