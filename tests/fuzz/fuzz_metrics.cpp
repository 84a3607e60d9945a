#include <algorithm>
#include <filesystem>
#include <string>

#include "runs/log/metrics_file.h"
#include "tests/fuzz/input.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway {
namespace {

using testing::require;

constexpr std::int64_t kLast = 3;

/// A run resumes after kLast steps, of which a checkpoint knows the second, and makes one more.
void resume(const std::string& path) {
  MetricsFile file(path, {}, {"accuracy"});
  file.resume(kLast, {{2, {.step = 2, .loss = 0.5}}});
  file.add({.step = kLast + 1, .loss = 0.25});
  file.complete();
  file.flush();
}

}  // namespace
}  // namespace spillway

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  static const testing::TemporaryFolder folder(std::filesystem::exists("/dev/shm") ? "/dev/shm"
                                                                                   : "/tmp");
  const std::string path = folder.write("metrics.csv", testing::to_string(data, size));
  read_metrics(path);
  resume(path);
  const auto rows = read_metrics(path);
  require(!rows.empty() && rows.back().step == kLast + 1, "the new step is the last");
  require(std::ranges::count(rows, 2, &StepMetrics::step) >= 1, "a saved step is there");
  const std::string written = folder.read("metrics.csv");
  resume(path);
  require(folder.read("metrics.csv") == written, "a file that was resumed is resumed the same");
  return 0;
}
