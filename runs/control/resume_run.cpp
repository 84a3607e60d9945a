#include "runs/control/resume_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <system_error>
#include <utility>

#include "runs/control/clone_trial.h"
#include "runs/folder/growth.h"
#include "runs/folder/prepare.h"
#include "runs/folder/sound_outputs.h"
#include "runs/log/event_json.h"
#include "runs/log/metrics_files.h"
#include "runs/output/run_documents.h"
#include "spillway/error.h"
#include "trainer/journal/run_journal.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

/// Turns I/O errors of `work` into errors of the configuration: nothing has been trained yet.
template <typename Work>
void use(const OutputFolder& folder, const Work& work) {
  try {
    work();
  } catch (const IoError& error) {
    throw ConfigError("output_dir", 0,
                      "'" + folder.path().string() + "' cannot be used: " + error.what());
  }
}

/// Moves a damaged journal aside: a new one is rebuilt from checkpoints and log.
void open_journal(Session& session, RunLock lock, const OutputFolder& folder,
                  const std::string& problem, std::ostream& notes) {
  if (!problem.empty()) {
    const std::string file = folder.file(kJournalFile).string();
    notes << fmt::format(
        "spillway: {0}\nspillway: renaming it to {1}.damaged and making a new one\n", problem,
        file);
    for (const char* end : {"-wal", "-shm"}) fs::remove(file + end);
    fs::rename(file, file + ".damaged");
  }
  session.keep_journal(std::move(lock));
}

/// Decides which trials to resume, and reports why trials that have ended are resumed too.
class OpenTrials {
 public:
  OpenTrials(const RunLog& run, bool is_damaged, const OutputFolder& folder, const Session& session,
             bool retry_failed, std::ostream& log)
      : run_(run),
        is_damaged_(is_damaged),
        folder_(folder),
        retry_failed_(retry_failed),
        log_(log) {
    for (const TrialResult& trial : session.journal()) in_journal_[trial.name] = trial.state;
  }

  /// `max_steps`: of the trial from now on.
  bool operator()(std::size_t t, std::int64_t max_steps) {
    if (t >= run_.trials.size()) return true;
    const TrialResult& trial = run_.trials[t].result;
    const TrialCall call = run_.trials[t].call;
    const bool rests = call == TrialCall::stop || call == TrialCall::pause;
    if (rests && trial.state != TrialState::done) return false;
    if (run_.trials[t].extended_alone && trial.state == TrialState::stopped_early) return true;
    const auto known = in_journal_.find(trial.name);
    // After a crash of the machine the log may be incomplete; the journal is not.
    const bool has_ended = is_final(trial.state) && known != in_journal_.end() &&
                           trial.state == known->second &&
                           !(retry_failed_ && trial.state == TrialState::failed);
    if (!has_ended) return true;
    if (trial.state != TrialState::done) return false;
    return trial.steps < max_steps || is_to_be_restored(trial);
  }

 private:
  /// Resuming a finished trial from its last checkpoint rewrites its outputs.
  bool is_to_be_restored(const TrialResult& trial) {
    const std::string problem = problem_of_weights(folder_.weights_file(trial.name), trial);
    const bool has_checkpoint = !checkpoints_in(folder_.checkpoints(trial.name)).empty();
    if (!problem.empty()) {
      log_ << fmt::format("spillway: trial {}: {}; {}\n", trial.name, problem,
                          has_checkpoint ? "restoring them from its last checkpoint"
                                         : "it has no checkpoint to restore them from");
    }
    return has_checkpoint && (!problem.empty() || is_damaged_);
  }

  const RunLog& run_;
  const bool is_damaged_;
  const OutputFolder& folder_;
  const bool retry_failed_;
  std::ostream& log_;
  std::map<std::string, TrialState> in_journal_;
};

/// The trials of the configuration that must be trained.
Place open_trials(const std::vector<Trial>& all, const RunLog& before, OpenTrials is_open) {
  Place place{.sequence = before.sequence, .time_s = before.time_s};
  for (std::size_t t = 0; t < all.size(); ++t) {
    if (is_open(t, all[t].config.train.max_steps)) place.trials.push_back(t);
  }
  return place;
}

/// Adds a trial that has ended, so that it can be cloned. False if it is resumed anyway.
bool insert(std::size_t ended, std::vector<std::size_t>& numbers) {
  const auto place = std::ranges::lower_bound(numbers, ended);
  if (place != numbers.end() && *place == ended) return false;
  numbers.insert(place, ended);
  return true;
}

/// Of trials that a new journal does not know.
void restore_changes(std::vector<TrialConfig>& configs, const RunLog& run, const Session& session) {
  const auto known = session.journal();
  for (std::size_t t = 0; t < run.trials.size(); ++t) {
    if (std::ranges::count(known, configs[t].client_id, &TrialResult::name) > 0) continue;
    configs[t].train.changes = run.trials[t].changes;
  }
}

/// Checks trials that have ended too: their results would be reported for another configuration.
void require_unchanged(Session& session, const std::vector<TrialConfig>& configs,
                       const OutputFolder& folder) {
  Findings findings;
  for (const TrialConfig& config : configs) {
    const auto changes = session.changes(config);
    if (changes.empty()) continue;
    findings.add("output_dir", 0,
                 fmt::format("in '{}' trial '{}' has another contract:{}, or choose another "
                             "output_dir",
                             folder.path().string(), config.name, explain(changes)));
  }
  findings.throw_if_any();
}

/// Finds, before anything is written, why a request to a run that nobody trains has to be refused.
void find_refusal(const Json& request, const std::vector<Trial>& all, const RunLog& run,
                  const OutputFolder& folder, Findings& findings) {
  if (request.at("call") != "clone") return;
  const auto values = request.at("values").get<std::vector<std::string>>();
  const Trial& source = all.at(number_of(request.at("trial"), run));
  run_configs({longer(clone_of(source, values), trial_values(values, kCloneKeys))}, folder,
              findings);
}

void report_damage(const LoggedRun& before, const OutputFolder& folder, std::ostream& log) {
  const std::string file = folder.file(kEventFile).string();
  for (const std::string& damage : before.damage)
    log << fmt::format("spillway: {}: {}\n", file, damage);
  if (before.run.trials.empty()) {
    log << fmt::format(
        "spillway: {} is {}; starting a new log, and all trials resume from their "
        "checkpoints\n",
        file, before.damage.empty() ? "missing" : "damaged");
  } else if (!before.damage.empty()) {
    log << "spillway: these lines are skipped and restored from the checkpoints\n";
  }
}

/// Reports durable checkpoints that are missing or damaged now, and trials that were done without
/// one. `place`: of the trials in the log.
void report_lost_checkpoints(const RunLog& before, const Place& place,
                             const KnownCheckpoints& known, const std::vector<Trial>& trials,
                             const Session& session, std::ostream& log) {
  const auto now = session.result().trials;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const std::size_t number = place.trials[t];
    const auto found = known.newest.find(trials[t].name);
    if (found == known.newest.end() && number < before.trials.size() && now[t].steps == 0 &&
        before.trials[number].result.state == TrialState::done) {
      log << fmt::format("spillway: trial {}: it has no checkpoint and trains from the beginning\n",
                         trials[t].name);
    }
    if (found == known.newest.end() || now[t].steps >= found->second.step) continue;
    log << fmt::format(
        "spillway: trial {}: its checkpoint after step {} (generation {}) is missing or damaged; "
        "it resumes {}\n",
        trials[t].name, found->second.step, found->second.generation,
        now[t].steps > 0 ? fmt::format("after step {}", now[t].steps) : "from the beginning");
  }
}

/// Continues the log, or starts a new one if it has lost the list of trials.
std::unique_ptr<EventLog> open_log(const OutputFolder& folder, LoggedRun before) {
  const fs::path file = folder.file(kEventFile);
  if (!before.run.trials.empty()) return std::make_unique<EventLog>(file, std::move(before));
  if (!before.damage.empty()) fs::rename(file, file.string() + ".damaged");
  return std::make_unique<EventLog>(file);
}

/// Logs the user's call, that the run gets new trials, and which trials are started. The new ones
/// are the last.
std::unique_ptr<EventLog> continue_log(const OutputFolder& folder, LoggedRun before,
                                       const std::optional<Json>& call,
                                       const std::vector<Trial>& trials, const Place& place,
                                       const Session& session,
                                       const std::optional<RunResult>& planned) {
  const std::size_t num_known = before.run.trials.size();
  const auto is_known = [&](std::size_t number) { return number < num_known; };
  const auto first_new = static_cast<std::size_t>(std::ranges::count_if(place.trials, is_known));
  std::vector<std::string> names;
  for (std::size_t t = first_new; t < trials.size(); ++t) names.push_back(trials[t].name);
  folder.add_trials(names);
  auto events = open_log(folder, std::move(before));
  if (num_known == 0) {
    events->add(run_event(trials, session, planned));
  } else {
    if (call) events->add(*call);
    if (!names.empty()) events->add(added_event(trials, first_new, session));
    events->add(restart_event(trials, place.trials, 0, session, planned));
  }
  events->sync();
  return events;
}

template <typename T>
std::vector<T> chosen(std::vector<T> all, const std::vector<std::size_t>& numbers) {
  std::vector<T> some;
  for (const std::size_t n : numbers) some.push_back(std::move(all[n]));
  return some;
}

/// The run may have been killed before it wrote them.
void write_again(const RunLog& run, const OutputFolder& folder, std::ostream& notes) {
  const MetricsFiles metrics{folder.path()};  // writes them from the log
  if (!write_outputs(folder, run, notes))
    throw Error("not all outputs of the run could be written; free disk space and resume it again");
}

}  // namespace

void require_begun(const OutputFolder& folder) {
  require_folder(folder.path());
  const std::string name = "'" + folder.path().string() + "' ";
  std::error_code error;
  const auto fail = [](const std::string& problem) { throw ConfigError("", 0, problem); };
  switch (folder.content()) {
    case OutputFolder::Content::run:
      break;
    case OutputFolder::Content::leftovers:
      fail(name + "holds a run that was killed before it started; start it with 'spillway train'");
      break;
    case OutputFolder::Content::nothing:
    case OutputFolder::Content::others:
      fail(name +
           "holds no run; start one with 'spillway train', or name the folder of a run, "
           "such as runs/NAME");
  }
  if (!fs::is_regular_file(folder.file("config.yaml"), error))
    fail(folder.file("config.yaml").string() +
         " is missing or not a file; the run cannot be resumed without it, so restore it");
}

std::optional<OpenRun> resume_run(std::vector<Trial> all, Findings findings,
                                  const OutputFolder& folder, const RunResources& resources,
                                  const ResumeWish& wish, std::ostream& notes) {
  const RunConfig given = all.front().config;
  require_first_host(given);
  const RunConfig stored = stored_config(folder).value_or(given);
  std::optional<RunLock> lock;
  LoggedRun before;
  use(folder, [&] {
    lock.emplace(folder.lock());
    before = read_log(folder.path());
  });
  RunLog run = before.run;
  std::optional<Json> call;
  if (wish.call) run.apply(call.emplace(event_of(*wish.call, run)));
  auto ended = wish.request ? ended_trial_of(*wish.request, run) : std::nullopt;
  if (findings.empty()) {
    all = match_trials(std::move(all), run);
    extend_trials(all, run, stored, findings);
  }
  auto all_configs = run_configs(all, folder, findings);
  if (wish.request && findings.empty()) find_refusal(*wish.request, all, run, folder, findings);
  auto made = make_session(run_session(all.front(), resources.pilot_cache), all.front(), findings);
  findings.throw_if_any();
  Session& session = *made;
  const KnownCheckpoints known = known_checkpoints(before.run, folder);
  use(folder,
      [&] { open_journal(session, std::move(*lock), folder, known.journal_problem, notes); });
  report_damage(before, folder, notes);
  restore_changes(all_configs, run, session);
  Place place = open_trials(
      all, run, {run, !before.damage.empty(), folder, session, wish.retry_failed, notes});
  if (ended && !insert(*ended, place.trials)) ended.reset();
  require_unchanged(session, all_configs, folder);
  if (place.trials.empty()) {
    session.announce_trials({});
    write_again(before.run, folder, notes);
    return std::nullopt;
  }

  const auto trials = chosen(all, place.trials);
  auto configs = chosen(std::move(all_configs), place.trials);
  for (std::size_t t = 0; t < configs.size(); ++t) {
    const std::size_t number = place.trials[t];
    if (ended == number) continue;
    configs[t].checkpoint.resume = true;
    configs[t].exempt_from_early_stopping =
        number < run.trials.size() && run.trials[number].extended_alone;
  }
  const auto misfits = submit_all(session, std::move(configs), trials);
  require_fit(session, trials.front().config.session, misfits, resources.machine, notes);
  report_lost_checkpoints(before.run, place, known, trials, session, notes);
  const auto planned = simulate(session, trials);
  store_growth(folder, stored, given);
  auto events = continue_log(folder, std::move(before), call, trials, place, session, planned);
  return OpenRun{.all = std::move(all),
                 .trials = trials,
                 .place = std::move(place),
                 .planned = planned,
                 .events = std::move(events),
                 .session = std::move(made)};
}

}  // namespace spillway
