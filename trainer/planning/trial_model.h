#pragma once

#include <memory>

#include "spillway/model.h"
#include "spillway/trial_config.h"

namespace spillway {

/// Makes the model of a trial once, for virtual nodes of its size; null if the trial has no model.
/// Throws all errors of the configuration, like TrialConfig::validate().
std::unique_ptr<Model> make_valid_model(const TrialConfig& trial);

}  // namespace spillway
