#pragma once

#include <string>

#include "spillway/contract.h"
#include "spillway/results.h"
#include "trainer/journal/journal.h"

/// The texts in a row of the journal. The readers throw Error for others than the writers make.
namespace spillway {

/// JournalTrial::result, without the lists of losses.
std::string result_text(const TrialResult& result);
TrialResult result_of(const JournalTrial& trial);

TrialState state_of(const JournalTrial& trial);

/// JournalTrial::config.
std::string contract_text(const Contract& contract);
Contract contract_in(const JournalTrial& trial);

}  // namespace spillway
