#pragma once

#include <string>

#include "spillway/contract.h"
#include "spillway/data_source.h"
#include "spillway/spec.h"
#include "spillway/trial_config.h"

namespace spillway {

/// Grows when the same contract computes other bits: tests/golden holds hashes that notice.
inline constexpr int kNumericsVersion = 1;

/// Everything that the bits of a trial depend on; the kernels' part of it is measured
/// (trainer/profile/numerics.h), on GPUs only that of what the host does. `data_xxh3` is xxh3_of()
/// its data, `device` the Device::exact_kind() of those that compute it.
Contract contract_of(const TrialConfig& trial, const ModelSpec& model, const std::string& data_xxh3,
                     const std::string& device);

/// Of all samples, in order, and of how they are split. Reads everything once, and throws as
/// check_sample() (models/data/sample_check.h).
std::string xxh3_of(const DataSplit& data, const ModelSpec& model);

}  // namespace spillway
