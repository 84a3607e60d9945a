#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/support/run/checkpoint_run.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/checkpoint/generation_writer.h"
#include "trainer/journal/journal.h"

/// A job that writes checkpoints and records them in a journal; commit_kill_test.py kills it.
///   commit_run write FOLDER [BUG]   runs to kSteps; prints each step once it is committed
///   commit_run check FOLDER STEP    restarts after STEP was printed; reports losses, exits with 1
/// A BUG makes it break a rule of commits: written_in_place, recorded_early, removed_early.
namespace spillway::testing {
namespace {

constexpr const char* kJob = "checkpoints";
constexpr std::uint64_t kSteps = 3;
constexpr CheckpointOptions kOptions{.keep = 2, .block_bytes = 600};

class CommitRun {
 public:
  explicit CommitRun(const FileSystem::Path& folder)
      : checkpoints_(folder / kJob), journal_(folder / "journal.sqlite") {
    journal_.submit(kJob, "config");
  }

  void write(const std::string& bug) {
    CheckpointStore store(files_, checkpoints_, kOptions);
    std::uint64_t last = 0;
    if (const auto newest = store.open_newest().generation) {
      last = newest->manifest().step;
      journal_.committed(kJob, newest->number(), last);
    }
    for (auto step = last + 1; step <= kSteps; ++step) {
      commit(store, step, bug);
      std::cout << step << std::endl;
    }
  }

  /// The problems of the folder; empty: none.
  std::string problem(std::uint64_t printed) {
    CheckpointStore store(files_, checkpoints_, kOptions);
    const auto newest = store.open_newest();
    if (!newest.findings.empty()) return newest.findings[0].problem;
    const std::uint64_t last = newest.generation ? newest.generation->manifest().step : 0;
    if (newest.generation && !is_right(*newest.generation)) return "the newest has other bytes";
    if (!store.verify().empty()) return store.verify()[0].problem;
    const auto there = store.generations();
    for (std::uint64_t g = last; g > 0 && g + kOptions.keep > last; --g) {
      if (std::ranges::find(there, g) == there.end()) return std::to_string(g) + " is lost";
    }
    const auto known = journal_.trials().at(0).committed.value_or(CommittedGeneration{});
    if (known.step != known.generation) return "the journal has another step";
    if (known.step < printed) return "the journal lacks what was printed";
    // Between the rename and its record, a generation exists but is not recorded yet.
    if (known.step != last && known.step + 1 != last) return "the journal and the folder differ";
    return "";
  }

 private:
  void commit(CheckpointStore& store, std::uint64_t step, const std::string& bug) {
    if (bug == "recorded_early") journal_.committed(kJob, step, step);
    if (bug == "removed_early" && step > 2)
      std::filesystem::remove_all(generation_path(checkpoints_, step - 2));
    if (bug == "written_in_place") {
      const auto folder = generation_path(checkpoints_, step);
      files_.make_folder(folder);
      write_generation(files_, folder, made_up_content(step), kOptions.block_bytes);
      journal_.committed(kJob, step, step);
      return;
    }
    store.write(made_up_content(step),
                [&](std::uint64_t number) { journal_.committed(kJob, number, step); });
  }

  FileSystem& files_ = posix_file_system();
  const FileSystem::Path checkpoints_;
  Journal journal_;
};

int run(const std::vector<std::string>& words) {
  CommitRun job(words.at(1));
  if (words[0] == "write") {
    job.write(words.size() > 2 ? words[2] : "");
    return 0;
  }
  const std::string problem = job.problem(std::stoull(words.at(2)));
  std::cout << problem;
  return problem.empty() ? 0 : 1;
}

}  // namespace
}  // namespace spillway::testing

int main(int argc, char** argv) {
  try {
    return spillway::testing::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cout << error.what();
    return 1;
  }
}
