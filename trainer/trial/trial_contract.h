#pragma once

#include <string>
#include <vector>

#include "spillway/contract.h"
#include "spillway/data_source.h"
#include "spillway/session_config.h"
#include "spillway/spec.h"
#include "spillway/trial_config.h"

namespace spillway {

/// Raised when the same contract computes other bits; the hashes in tests/golden detect that.
inline constexpr int kNumericsVersion = 1;

/// Everything that the bits of a trial depend on. The part that depends on kernels is measured
/// (trainer/profile/numerics.h); for GPUs, only for the kernels of the host. `data_xxh3`: xxh3_of()
/// its data; `device`: Device::exact_kind() of its devices.
Contract contract_of(const TrialConfig& trial, const ModelSpec& model, const std::string& data_xxh3,
                     const std::string& device);

/// The field `sweep.early_terminate`. Rules that compare training losses are written as before
/// there was a choice of metrics.
std::string contract_text(const EarlyTerminate& early);

/// Like differences(), but `now` may extend the trial of `then`: more steps, and
/// TrainConfig::extended_from begins with those that it had.
std::vector<ContractDifference> changes_since(const Contract& then, const Contract& now);

/// The hash of all samples, in order, and of their split. Reads everything once. Throws what
/// check_sample() throws (models/data/sample_check.h).
std::string xxh3_of(const DataSplit& data, const ModelSpec& model);

}  // namespace spillway
