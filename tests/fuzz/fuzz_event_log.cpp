#include <filesystem>
#include <string>

#include "runs/log/event_line.h"
#include "runs/log/event_log.h"
#include "spillway/error.h"
#include "tests/fuzz/input.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway {
namespace {

using testing::require;

/// A skipped line is gone once a run has continued the log.
void read_and_repair(const testing::TemporaryFolder& folder, const std::string& log) {
  const std::string file = folder.write(kEventFile, log);
  try {
    LoggedRun read = read_log(folder.path());
    const auto num_trials = read.run.trials.size();
    const auto sequence = read.run.sequence;
    { const EventLog repaired(file, std::move(read)); }
    const LoggedRun again = read_log(folder.path());
    require(again.damage.empty(), "a log that was repaired has no damage");
    require(again.run.trials.size() == num_trials, "a log that was repaired has its trials");
    require(again.run.sequence == sequence, "a log that was repaired goes on where it ended");
  } catch (const ConfigError&) {
  }
}

/// The same events, each with its right hash: few inputs have one, and it lets the reader get
/// further.
std::string hashed(const std::string& log) {
  std::string lines;
  for (std::size_t begin = 0, end = 0; (end = log.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const Json event = Json::parse(log.substr(begin, end - begin), nullptr, false);
    if (!event.is_object() || event.empty()) continue;
    Json bare = event;
    bare.erase("xxh3");
    try {
      if (!bare.empty()) lines += event_line(bare);
    } catch (const Json::exception&) {  // text that is not UTF-8 is not written
    }
  }
  return lines;
}

}  // namespace
}  // namespace spillway

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  static const testing::TemporaryFolder folder(std::filesystem::exists("/dev/shm") ? "/dev/shm"
                                                                                   : "/tmp");
  const std::string log = testing::to_string(data, size);
  read_and_repair(folder, log);
  read_and_repair(folder, hashed(log));
  return 0;
}
