#include "runs/output/run_documents.h"

#include <ostream>

#include "spillway/error.h"
#include "trainer/storage/run_lock.h"

namespace spillway {

ReadRun read_run_and_state(const std::filesystem::path& folder) {
  // Checked first: the run may end while its log is read.
  const bool live = holder_of(folder).has_value();
  ReadRun read{.logged = read_run(folder), .state = RunState::unfinished};
  if (live) read.state = RunState::running;
  if (read.logged.run.actual) read.state = RunState::ended;
  return read;
}

bool write_outputs(const OutputFolder& folder, const RunLog& run, std::ostream& problems) {
  bool written = true;
  const auto write = [&](const char* name, const std::string& text) {
    try {
      folder.write(name, text);
    } catch (const IoError& error) {
      problems << "spillway: cannot write " << name << ": " << error.what() << "\n";
      written = false;
    }
  };
  write("results.csv", results_csv(run));
  write("plan.json", plan_json(run));
  return written;
}

}  // namespace spillway
