#include "apps/commands/verify_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <system_error>
#include <vector>

#include "runs/folder/output_folder.h"
#include "runs/folder/sound_outputs.h"
#include "runs/log/event_log.h"
#include "runs/log/run_json.h"
#include "runs/text/format.h"
#include "runs/text/table.h"
#include "spillway/error.h"
#include "trainer/checkpoint/checkpoint_store.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

struct CheckedGeneration {
  std::string trial;
  std::uint64_t generation = 0;
  std::int64_t step = -1;
  Bytes bytes = 0;
  std::string problem;
};

struct CheckedWeights {
  std::string trial;
  std::string problem;
};

/// The checked files. A file without a problem is intact.
struct Checked {
  std::vector<CheckedGeneration> generations;
  std::vector<CheckedWeights> weights;
  std::vector<std::string> log_damage;
  std::string journal_problem;

  bool is_sound() const {
    const auto is_fine = [](const auto& one) { return one.problem.empty(); };
    return log_damage.empty() && journal_problem.empty() &&
           std::ranges::all_of(generations, is_fine) && std::ranges::all_of(weights, is_fine);
  }
};

CheckedGeneration check_generation(const std::string& trial, const fs::path& checkpoints,
                                   std::uint64_t number) {
  CheckedGeneration found{.trial = trial, .generation = number};
  try {
    const Generation generation(posix_file_system(), generation_path(checkpoints, number), number);
    found.step = static_cast<std::int64_t>(generation.manifest().step);
    for (const ManifestFile& file : generation.manifest().files) found.bytes += file.bytes;
    generation.verify();
  } catch (const Error& error) {
    found.problem = error.what();
  }
  return found;
}

/// Checks all checkpoints in the folder; reports the newest known one if it is missing.
void check_checkpoints(const std::string& trial, const fs::path& checkpoints,
                       const KnownCheckpoints& known, Checked& all) {
  const auto there = checkpoints_in(checkpoints);
  for (const std::uint64_t number : there) {
    CheckedGeneration checked = check_generation(trial, checkpoints, number);
    // A running run may have removed it in the meantime.
    std::error_code error;
    const bool is_gone = !fs::exists(generation_path(checkpoints, number), error);
    if (!is_gone) all.generations.push_back(std::move(checked));
  }
  const auto newest = known.newest.find(trial);
  if (newest == known.newest.end()) return;
  const SavedCheckpoint& saved = newest->second;
  if (!there.empty() && there.back() >= saved.generation) return;
  all.generations.push_back({.trial = trial,
                             .generation = saved.generation,
                             .step = saved.step,
                             .problem = generation_path(checkpoints, saved.generation).string() +
                                        " is missing; 'spillway resume' continues without it"});
}

/// The trials in the log; if that list is lost, the trials that have a folder.
std::vector<TrialLog> trials_of(const RunLog& run, const OutputFolder& folder) {
  if (!run.trials.empty()) return run.trials;
  std::vector<TrialLog> trials;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.file("trials"), error))
    trials.push_back({.result = {.name = entry.path().filename().string()}});
  return trials;
}

Checked check(const OutputFolder& folder) {
  const auto [run, log_damage] = read_log(folder.path());
  Checked all{.log_damage = log_damage};
  if (run.trials.empty() && log_damage.empty())
    all.log_damage.push_back("is missing; 'spillway resume' rebuilds it from the checkpoints");
  const KnownCheckpoints known = known_checkpoints(run, folder);
  all.journal_problem = known.journal_problem;
  for (const TrialLog& trial : trials_of(run, folder)) {
    const std::string& name = trial.result.name;
    check_checkpoints(name, folder.checkpoints(name), known, all);
    if (trial.result.state == TrialState::done)
      all.weights.push_back({name, problem_of_weights(folder.weights_file(name), trial.result)});
  }
  return all;
}

void print(std::ostream& out, const Checked& all, const fs::path& log) {
  const auto state = [](const auto& one) { return one.problem.empty() ? "intact" : "DAMAGED"; };
  if (!all.generations.empty() || !all.weights.empty()) {
    Table table({"trial", "file", "step", "size", "state"});
    for (const auto& one : all.generations) {
      table.add({one.trial, fmt::format("checkpoint {}", one.generation),
                 one.step < 0 ? "" : fmt::to_string(one.step), format_bytes(one.bytes),
                 state(one)});
    }
    for (const auto& one : all.weights) table.add({one.trial, "final weights", "", "", state(one)});
    table.print(out);
  } else {
    out << "This run has no checkpoints and no final weights.\n";
  }
  for (const auto& one : all.generations)
    if (!one.problem.empty()) out << one.trial << ": " << one.problem << "\n";
  for (const auto& one : all.weights)
    if (!one.problem.empty()) out << one.trial << ": " << one.problem << "\n";
  for (const auto& problem : all.log_damage) out << log.string() << ": " << problem << "\n";
  if (!all.journal_problem.empty()) out << all.journal_problem << "\n";
}

Json json_of(const Checked& all) {
  const auto or_null = [](const std::string& problem) {
    return problem.empty() ? Json(nullptr) : Json(problem);
  };
  Json checkpoints = Json::array(), weights = Json::array();
  for (const CheckedGeneration& one : all.generations) {
    checkpoints.push_back({{"trial", one.trial},
                           {"checkpoint", one.generation},
                           {"step", one.step < 0 ? Json(nullptr) : Json(one.step)},
                           {"bytes", one.bytes},
                           {"problem", or_null(one.problem)}});
  }
  for (const CheckedWeights& one : all.weights)
    weights.push_back({{"trial", one.trial}, {"problem", or_null(one.problem)}});
  return {{"checkpoints", std::move(checkpoints)},
          {"weights", std::move(weights)},
          {"log", all.log_damage},
          {"journal", or_null(all.journal_problem)}};
}

/// Throws ConfigError if the folder is not a run's.
void require_run(const OutputFolder& folder) {
  if (folder.content() == OutputFolder::Content::run) return;
  read_run(folder.path());  // throws with the reason
}

}  // namespace

ExitCode verify(const VerifyOptions& options, std::ostream& out) {
  const OutputFolder folder(options.folder);
  require_run(folder);
  const Checked all = check(folder);
  if (options.json) {
    out << to_text(json_of(all));
  } else {
    print(out, all, folder.file(kEventFile));
  }
  return all.is_sound() ? kDone : kTrialFailed;
}

}  // namespace spillway
