#include "trainer/trial/journal_row.h"

#include <gtest/gtest.h>

#include <string>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"

namespace spillway {
namespace {

using testing::thrown;

const JournalTrial kRow{.client_id = "a",
                        .state = "done",
                        .result = result_text({.num_shards = 2, .order = "vn_major", .steps = 9})};

TEST(JournalRow, IsReadAsItWasWritten) {
  const TrialResult result = result_of(kRow);
  EXPECT_EQ(result.steps, 9);
  EXPECT_EQ(result_text(result), kRow.result);
  const Contract contract{{"train.seed", "1"}};
  EXPECT_EQ(contract_in({.config = contract_text(contract)}), contract);
}

TEST(JournalRow, RefusesOtherTextsAndNamesTheTrial) {
  const auto with = [](const std::string& from, const std::string& to) {
    JournalTrial row = kRow;
    const std::size_t place = row.result.find(from);
    EXPECT_NE(place, std::string::npos);
    row.result.replace(place, from.size(), to);
    return row;
  };
  for (const JournalTrial& row :
       {with("{", ""), with("\"steps\":9", "\"steps\":1e300"), with("\"steps\":9", "\"step\":9"),
        with("\"num_shards\":2", "\"num_shards\":4294967298")}) {
    const std::string said = thrown<Error>([&] { result_of(row); }).what();
    EXPECT_EQ(said.find("the journal has an invalid result of trial 'a' ("), 0u) << said;
  }
  EXPECT_THROW(contract_in({.client_id = "a", .config = "[1]"}), Error);
  EXPECT_THROW(state_of({.client_id = "a", .state = "flying"}), Error);
}

}  // namespace
}  // namespace spillway
