#pragma once

#include <string>
#include <vector>

#include "spillway/contract.h"
#include "spillway/train_config.h"

/// Changes of a trial that trains, as they are checked and stored.
namespace spillway {

/// The field of a contract that has them. A contract without changes lacks it.
inline constexpr const char* kChanges = "train.changes";

/// Throws ConfigErrors that name the field, after `prefix`, and its value.
void require_valid(const TrainValues& values, const std::string& prefix);

/// "learning_rate 0.001, weight_decay 0".
std::string to_string(const TrainValues& values);

/// Sets or removes the field.
void set_changes(Contract& contract, const std::vector<TrainChange>& changes);
/// None if the contract lacks the field. Throws CorruptData.
std::vector<TrainChange> changes_in(const Contract& contract);

/// Whether `longer` begins with all of `shorter`.
bool begins_with(const std::vector<TrainChange>& longer, const std::vector<TrainChange>& shorter);

}  // namespace spillway
