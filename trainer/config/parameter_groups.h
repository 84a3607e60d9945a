#pragma once

#include <string>
#include <vector>

#include "spillway/contract.h"
#include "spillway/spec.h"
#include "spillway/train_config.h"

/// TrainConfig::parameter_groups.
namespace spillway {

/// The first group that matches a parameter of this name; null: none.
const ParameterGroup* group_of(const std::vector<ParameterGroup>& groups, const std::string& name);

/// Throws ConfigErrors for values out of range.
void require_valid(const std::vector<ParameterGroup>& groups);

/// Throws ConfigErrors that name each pattern which matches no trained parameter of the model.
void require_matches(const std::vector<ParameterGroup>& groups, const ModelSpec& model);

/// Sets the field `train.parameter_groups` unless there are none.
void set_groups(Contract& contract, const std::vector<ParameterGroup>& groups);

}  // namespace spillway
