#include <optional>

#include "spillway/error.h"
#include "tests/fuzz/input.h"
#include "trainer/checkpoint/trial_history.h"

namespace {

using namespace spillway;

void parse(const std::string& text, std::size_t limit, std::optional<Rungs> rungs) {
  try {
    const std::string written = TrialHistory::parse(text, "input", limit, rungs).to_text();
    const std::string again = TrialHistory::parse(written, "written", limit, rungs).to_text();
    testing::require(again == written, "what is written is read as it was");
  } catch (const CorruptData&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = testing::to_string(data, size);
  parse(text, 100, {});
  parse(text, 2, Rungs{.min_iter = 2, .eta = 2});
  parse(text, 100, Rungs{.min_iter = 3, .eta = 2, .interval = 2});
  return 0;
}
