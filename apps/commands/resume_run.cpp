#include "apps/commands/resume_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <system_error>
#include <utility>

#include "apps/commands/train_command.h"
#include "runs/folder/prepare.h"
#include "runs/folder/sound_outputs.h"
#include "runs/log/event_json.h"
#include "runs/log/metrics_files.h"
#include "spillway/error.h"
#include "trainer/journal/run_journal.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

/// Throws ConfigError for a folder without a run that can be gone on with.
void require_begun(const OutputFolder& folder) {
  require_folder(folder.path());
  const std::string name = "'" + folder.path().string() + "' ";
  std::error_code error;
  const auto fail = [](const std::string& problem) { throw ConfigError("", 0, problem); };
  switch (folder.content()) {
    case OutputFolder::Content::run:
      break;
    case OutputFolder::Content::leftovers:
      fail(name + "holds a run that was ended before it began; start it with 'spillway train'");
      break;
    case OutputFolder::Content::nothing:
    case OutputFolder::Content::others:
      fail(name +
           "holds no run; begin one with 'spillway train', or name the folder of a run, such as "
           "runs/NAME");
  }
  if (!fs::is_regular_file(folder.file("config.yaml"), error))
    fail(folder.file("config.yaml").string() +
         " is missing or not a file, so nobody knows what the run trains; put it back");
}

/// What keeps the folder from being used is told as such: nothing was trained.
template <typename Work>
void use(const OutputFolder& folder, const Work& work) {
  try {
    work();
  } catch (const IoError& error) {
    throw ConfigError("output_dir", 0,
                      "'" + folder.path().string() + "' cannot be used: " + error.what());
  }
}

/// A damaged journal is put aside: checkpoints and log know all that a new one needs.
void open_journal(Session& session, RunLock lock, const OutputFolder& folder,
                  const std::string& problem, const Console& console) {
  if (!problem.empty()) {
    const std::string file = folder.file(kJournalFile).string();
    console.log << "spillway: " << problem << "\nspillway: it is renamed to " << file
                << ".damaged, and a new one is made\n";
    for (const char* end : {"-wal", "-shm"}) fs::remove(file + end);
    fs::rename(file, file + ".damaged");
  }
  session.keep_journal(std::move(lock));
}

/// Which trials of a run have not ended, and why others are taken up again.
class OpenTrials {
 public:
  OpenTrials(const LoggedRun& before, const OutputFolder& folder, const Session& session,
             bool retry_failed, std::ostream& log)
      : before_(before), folder_(folder), retry_failed_(retry_failed), log_(log) {
    for (const TrialResult& trial : session.journal()) in_journal_[trial.name] = trial.state;
  }

  bool operator()(std::size_t t) {
    const TrialResult& trial = before_.run.trials[t].result;
    const auto known = in_journal_.find(trial.name);
    // The log need not have been on the disk as the machine stopped; the journal was.
    const bool has_ended = is_final(trial.state) && known != in_journal_.end() &&
                           trial.state == known->second &&
                           !(retry_failed_ && trial.state == TrialState::failed);
    return !has_ended || (trial.state == TrialState::done && is_to_be_restored(trial));
  }

 private:
  /// Resuming a trial that is done from its last checkpoint writes its outputs again.
  bool is_to_be_restored(const TrialResult& trial) {
    const std::string problem = problem_of_weights(folder_.weights_file(trial.name), trial);
    const bool has_checkpoint = !checkpoints_in(folder_.checkpoints(trial.name)).empty();
    if (!problem.empty()) {
      log_ << "spillway: trial " << trial.name << ": " << problem << "; "
           << (has_checkpoint ? "its last checkpoint restores them\n"
                              : "it has no checkpoint that could restore them\n");
    }
    return has_checkpoint && (!problem.empty() || !before_.damage.empty());
  }

  const LoggedRun& before_;
  const OutputFolder& folder_;
  const bool retry_failed_;
  std::ostream& log_;
  std::map<std::string, TrialState> in_journal_;
};

/// Of the trials that the run's configuration stands for, those that are to be trained. All, where
/// the log does not say which there are.
Place open_trials(const std::vector<Trial>& all, const LoggedRun& before, OpenTrials is_open) {
  const auto is_same = [](const Trial& trial, const TrialLog& log) {
    return trial.name == log.result.name;
  };
  const bool is_known = !before.run.trials.empty();
  if (is_known && !std::ranges::equal(all, before.run.trials, is_same)) {
    throw ConfigError("sweep", 0,
                      "is of other trials than the run has; leave it, or train in another folder");
  }
  Place place{.sequence = before.run.sequence, .time_s = before.run.time_s};
  for (std::size_t t = 0; t < all.size(); ++t) {
    if (!is_known || is_open(t)) place.trials.push_back(t);
  }
  return place;
}

/// Those that have ended, too: a result would be taken for that of another configuration.
void require_unchanged(Session& session, const std::vector<TrialConfig>& configs,
                       const OutputFolder& folder) {
  Findings findings;
  for (const TrialConfig& config : configs) {
    const auto changes = session.changes(config);
    if (changes.empty()) continue;
    findings.add("output_dir", 0,
                 "in '" + folder.path().string() + "' trial '" + config.name +
                     "' is of another contract:" + explain(changes) +
                     ", or choose another output_dir");
  }
  findings.throw_if_any();
}

void tell_damage(const LoggedRun& before, const OutputFolder& folder, std::ostream& log) {
  const std::string file = folder.file(kEventFile).string();
  for (const std::string& damage : before.damage)
    log << "spillway: " << file << ": " << damage << "\n";
  if (before.run.trials.empty()) {
    log << "spillway: " << file << " is " << (before.damage.empty() ? "missing" : "damaged")
        << "; it is begun anew, and all trials go on from their checkpoints\n";
  } else if (!before.damage.empty()) {
    log << "spillway: the log goes on without these; what they said is taken from checkpoints\n";
  }
}

/// What was durable, and is no longer there to go on from.
void tell_lost_checkpoints(const KnownCheckpoints& known, const std::vector<Trial>& trials,
                           const Session& session, std::ostream& log) {
  const auto now = session.result().trials;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const auto found = known.newest.find(trials[t].name);
    if (found == known.newest.end() || now[t].steps >= found->second.step) continue;
    log << "spillway: trial " << trials[t].name << ": its checkpoint after step "
        << found->second.step << " (generation " << found->second.generation
        << ") is missing or damaged; it goes on ";
    now[t].steps > 0 ? log << "after step " << now[t].steps << "\n" : log << "from the beginning\n";
  }
}

/// The log that goes on, or, where it does not say which trials there are, a new one.
std::unique_ptr<EventLog> open_log(const OutputFolder& folder, LoggedRun before) {
  const fs::path file = folder.file(kEventFile);
  if (!before.run.trials.empty()) return std::make_unique<EventLog>(file, std::move(before));
  if (!before.damage.empty()) fs::rename(file, file.string() + ".damaged");
  return std::make_unique<EventLog>(file);
}

template <typename T>
std::vector<T> chosen(std::vector<T> all, const std::vector<std::size_t>& numbers) {
  std::vector<T> some;
  for (const std::size_t n : numbers) some.push_back(std::move(all[n]));
  return some;
}

ExitCode report_ended(const RunLog& run, const OutputFolder& folder, const Console& console) {
  const ExitCode code = exit_code(run, false);
  console.log << "all trials of this run have ended"
              << (code == kTrialFailed ? "; --retry-failed takes up those that failed\n" : "\n");
  write_outputs(folder, run);  // the run may have ended before it came to that
  // Likewise, or they are damaged: opening them repairs them.
  const MetricsFiles repaired{folder.path()};
  print(run, folder, console);
  return code;
}

}  // namespace

ExitCode resume_run(const std::vector<Trial>& all, Findings findings, const OutputFolder& folder,
                    bool retry_failed, const fs::path& pilot_cache, const Console& console) {
  auto all_configs = run_configs(all, folder, findings);
  const auto made = make_session(run_session(all.front(), pilot_cache), all.front(), findings);
  findings.throw_if_any();
  Session& session = *made;
  LoggedRun before;
  KnownCheckpoints known;
  use(folder, [&] {
    RunLock lock = folder.lock();
    before = read_log(folder.path());
    known = known_checkpoints(before.run, folder);
    open_journal(session, std::move(lock), folder, known.journal_problem, console);
  });
  tell_damage(before, folder, console.log);
  const Place place =
      open_trials(all, before, {before, folder, session, retry_failed, console.log});
  require_unchanged(session, all_configs, folder);
  if (place.trials.empty()) return report_ended(before.run, folder, console);

  const auto trials = chosen(all, place.trials);
  auto configs = chosen(std::move(all_configs), place.trials);
  for (TrialConfig& config : configs) config.checkpoint.resume = true;
  submit_run(session, std::move(configs), trials, console.log);
  tell_lost_checkpoints(known, trials, session, console.log);
  const auto planned = simulate(session, trials);
  const bool is_new = before.run.trials.empty();
  const auto events = open_log(folder, std::move(before));
  events->add(is_new ? run_event(trials, session, planned)
                     : restart_event(place.trials, session, planned));
  events->sync();
  return follow(session, trials, place, planned, folder, *events, console);
}

ExitCode resume(const ResumeOptions& options, std::ostream& out, std::ostream& log,
                const Requests& requests) {
  const OutputFolder folder(options.folder);
  require_begun(folder);
  folder.require_free();
  Findings findings;
  const auto trials =
      read_trials(folder.file("config.yaml"), options.overrides, findings, options.folder);
  return resume_run(trials, std::move(findings), folder, options.retry_failed, options.pilot_cache,
                    {out, log, options.json, options.progress_file, requests});
}

}  // namespace spillway
