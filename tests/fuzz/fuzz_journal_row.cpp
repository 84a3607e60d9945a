#include <algorithm>
#include <string>

#include "spillway/error.h"
#include "tests/fuzz/input.h"
#include "trainer/trial/journal_row.h"

namespace {

using namespace spillway;

/// Text that was read and cannot be written, because it is not UTF-8, never comes from a journal.
void parse_result(JournalTrial row) {
  try {
    row.result = result_text(result_of(row));
    testing::require(result_text(result_of(row)) == row.result, "a result is read as written");
  } catch (const Error&) {
  }
}

void parse_contract(JournalTrial row) {
  try {
    row.config = contract_text(contract_in(row));
    testing::require(contract_text(contract_in(row)) == row.config,
                     "a contract is read as written");
  } catch (const Error&) {
  }
}

}  // namespace

/// A state in the first line, then a text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string all = testing::to_string(data, size);
  const std::size_t line = std::min(all.find('\n'), all.size());
  const std::string text = all.substr(std::min(line + 1, all.size()));
  parse_result({.client_id = "trial", .state = all.substr(0, line), .result = text});
  parse_result({.client_id = "trial", .state = "done", .result = text});
  parse_contract({.client_id = "trial", .config = text});
  return 0;
}
