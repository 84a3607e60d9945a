#include "apps/verify_command.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <vector>

#include "apps/event_log.h"
#include "apps/format.h"
#include "apps/output_folder.h"
#include "apps/run_json.h"
#include "apps/table.h"
#include "core/error.h"
#include "trainer/checkpoint_store.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

struct Verified {
  std::string trial;
  std::uint64_t generation = 0;
  std::int64_t step = -1;
  Bytes bytes = 0;
  std::string problem;
};

Verified verify_generation(const std::string& trial, const fs::path& checkpoints,
                           std::uint64_t number) {
  Verified found{.trial = trial, .generation = number};
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

/// Of a trial, ascending. What a crash has left unfinished is none.
std::vector<Verified> verify_trial(const std::string& trial, const fs::path& checkpoints) {
  std::vector<Verified> found;
  if (!fs::exists(checkpoints)) return found;
  for (const std::uint64_t number : generations_in(posix_file_system(), checkpoints)) {
    found.push_back(verify_generation(trial, checkpoints, number));
  }
  return found;
}

void print(std::ostream& out, const std::vector<Verified>& all) {
  Table table({"trial", "generation", "step", "size", "state"});
  for (const Verified& one : all) {
    table.add({one.trial, std::to_string(one.generation),
               one.step < 0 ? "" : std::to_string(one.step), format_bytes(one.bytes),
               one.problem.empty() ? "sound" : "DAMAGED"});
  }
  table.print(out);
  for (const Verified& one : all) {
    if (!one.problem.empty()) out << one.problem << "\n";
  }
}

Json json_of(const std::vector<Verified>& all) {
  Json list = Json::array();
  for (const Verified& one : all) {
    list.push_back({{"trial", one.trial},
                    {"generation", one.generation},
                    {"step", one.step < 0 ? Json(nullptr) : Json(one.step)},
                    {"bytes", one.bytes},
                    {"problem", one.problem.empty() ? Json(nullptr) : Json(one.problem)}});
  }
  return {{"checkpoints", std::move(list)}};
}

}  // namespace

ExitCode verify(const VerifyOptions& options, std::ostream& out) {
  const OutputFolder folder(options.folder);
  std::vector<Verified> all;
  for (const TrialLog& trial : read_run(folder.path()).trials) {
    const auto found = verify_trial(trial.result.name, folder.checkpoints(trial.result.name));
    all.insert(all.end(), found.begin(), found.end());
  }
  if (options.json) {
    out << to_text(json_of(all));
  } else if (all.empty()) {
    out << "This run has no checkpoints.\n";
  } else {
    print(out, all);
  }
  const bool damaged = std::ranges::any_of(all, [](const auto& v) { return !v.problem.empty(); });
  return damaged ? kTrialFailed : kDone;
}

}  // namespace spillway
