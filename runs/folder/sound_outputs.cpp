#include "runs/folder/sound_outputs.h"

#include <fmt/format.h>

#include <system_error>

#include "spillway/error.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/journal/journal.h"
#include "trainer/journal/run_journal.h"
#include "trainer/storage/weights_file.h"

namespace spillway {

namespace fs = std::filesystem;

KnownCheckpoints known_checkpoints(const RunLog& run, const OutputFolder& folder) {
  KnownCheckpoints known;
  for (const TrialLog& trial : run.trials) {
    if (trial.saved) known.newest[trial.result.name] = *trial.saved;
  }
  const fs::path file = folder.file(kJournalFile);
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return known;
  try {
    // The journal may know checkpoints that a truncated log does not.
    for (const JournalTrial& trial : Journal(file).trials()) {
      if (!trial.committed) continue;
      known.newest[trial.client_id] = {.generation = trial.committed->generation,
                                       .step = static_cast<std::int64_t>(trial.committed->step)};
    }
  } catch (const IoError&) {  // a read-only folder
  } catch (const Error& damage) {
    known.journal_problem = damage.what();
  }
  return known;
}

std::vector<std::uint64_t> checkpoints_in(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return {};
  return generations_in(posix_file_system(), folder);
}

std::string problem_of_weights(const fs::path& file, const TrialResult& trial) {
  if (trial.weights_xxh3.empty()) return "";
  std::error_code error;
  if (!fs::exists(file, error)) return fmt::format("its weights {} are missing", file.string());
  try {
    const auto weights = arrays_in(file_source(posix_file_system(), file));
    if (weights_xxh3(weights) == trial.weights_xxh3) return "";
    return fmt::format("its weights {} do not match their hash in the log", file.string());
  } catch (const Error& damage) {
    return fmt::format("its weights cannot be read: {}", damage.what());
  }
}

}  // namespace spillway
