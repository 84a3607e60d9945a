#pragma once

#include <memory>

#include "spillway/model.h"
#include "spillway/trial_config.h"

namespace spillway {

/// Makes the model of a trial, once, for a virtual node of it; null where none is given. Throws as
/// TrialConfig::validate(): all that is wrong with the configuration.
std::unique_ptr<Model> make_valid_model(const TrialConfig& trial);

}  // namespace spillway
