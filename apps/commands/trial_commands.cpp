#include "apps/commands/trial_commands.h"

#include <fmt/format.h>

#include <chrono>
#include <ostream>
#include <utility>

#include "apps/commands/resume_command.h"
#include "runs/folder/growth.h"
#include "runs/folder/requests.h"
#include "runs/log/event_log.h"
#include "spillway/error.h"
#include "trainer/storage/run_lock.h"

namespace spillway {
namespace {

/// An owner that is measuring layers answers later.
constexpr std::chrono::seconds kPatience(60);

/// Records the call in the log of a run that nobody trains. Returns the name of the trial.
std::string record(const OutputFolder& folder, const CallForTrial& call) {
  const RunLock lock = folder.lock();
  LoggedRun before = read_log(folder.path());
  const Json event = event_of(call, before.run);
  EventLog log(folder.file(kEventFile), std::move(before));
  log.add(event);
  log.sync();
  return log.run().trials.at(event.at("trial")).result.name;
}

Console console_of(const ResumeOptions& options, std::ostream& out, std::ostream& log,
                   const Requests& requests) {
  return {out, log, options.json, options.progress_file, requests};
}

/// Asks the process that trains the run, or resumes it with the request.
ExitCode call_with_values(const char* call, const ResumeOptions& options, std::ostream& out,
                          std::ostream& log, const Requests& requests) {
  const OutputFolder folder(options.folder);
  require_begun(folder);
  const Json request{{"call", call}, {"trial", options.trial}, {"values", options.overrides}};
  if (ask(folder, request, out)) return kDone;
  ResumeOptions resuming = options;
  resuming.overrides.clear();
  return resume(folder, resuming, {.request = request}, console_of(options, out, log, requests));
}

}  // namespace

bool ask(const OutputFolder& folder, const Json& request, std::ostream& out) {
  if (!holder_of(folder.path())) return false;
  const auto reply = ask_owner(folder.path(), request, kPatience);
  if (!reply) return false;
  if (reply->contains("error")) throw ConfigError("", 0, reply->at("error"));
  out << reply->at("text").get<std::string>() << "\n";
  return true;
}

ExitCode call_for_trial(const std::string& path, const CallForTrial& call, std::ostream& out) {
  const OutputFolder folder(path);
  require_begun(folder);
  if (ask(folder, request_of(call), out)) return kDone;
  const std::string name = record(folder, call);
  out << fmt::format("trial {} is {}; 'spillway resume {}' continues it only with --trial\n", name,
                     call.call == TrialCall::stop ? "stopped" : "paused", path);
  return kDone;
}

ExitCode extend(const ResumeOptions& options, std::optional<std::int64_t> steps, std::ostream& out,
                std::ostream& log, const Requests& requests) {
  const OutputFolder folder(options.folder);
  require_begun(folder);
  CallForTrial call{TrialCall::extend, options.trial, steps};
  std::vector<std::string> others = options.overrides;
  std::erase_if(others, [](const auto& text) { return !text.starts_with(kExtendKeys[0]); });
  call.extension = trial_values(others, kExtendKeys).extension;
  if (holder_of(folder.path())) trial_values(options.overrides, kExtendKeys);  // takes no others
  if (ask(folder, request_of(call), out)) return kDone;
  return resume(folder, options, {.call = call}, console_of(options, out, log, requests));
}

ExitCode set(const ResumeOptions& options, std::ostream& out, std::ostream& log,
             const Requests& requests) {
  trial_values(options.overrides, kSetKeys);
  return call_with_values("set", options, out, log, requests);
}

ExitCode clone(const ResumeOptions& options, std::ostream& out, std::ostream& log,
               const Requests& requests) {
  trial_values(options.overrides, kCloneKeys);
  return call_with_values("clone", options, out, log, requests);
}

ExitCode add(const ResumeOptions& options, std::ostream& out, std::ostream& log,
             const Requests& requests) {
  const OutputFolder folder(options.folder);
  require_begun(folder);
  if (ask(folder, {{"call", "add"}, {"values", options.overrides}}, out)) return kDone;
  Findings findings;
  auto trials = trials_with(folder, options.overrides, findings);
  return resume_and_follow(std::move(trials), std::move(findings), folder,
                           {options.pilot_cache, options.machine}, {},
                           console_of(options, out, log, requests));
}

}  // namespace spillway
