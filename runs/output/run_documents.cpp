#include "runs/output/run_documents.h"

#include <ostream>

#include "spillway/error.h"

namespace spillway {

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
