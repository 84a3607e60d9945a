#pragma once

#include <cstdint>
#include <string>

#include "core/base/config_check.h"

/// Checks of a model's configuration. Each records the field, the value and the remedy, and returns
/// whether it holds.
namespace spillway::detail {

/// The most elements of a tensor: one random draw covers no more (core/device/kernels.h).
inline constexpr std::int64_t kMaxTensorElements = std::int64_t{1} << 34;
inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;

bool require_range(ConfigCheck& check, std::int64_t value, std::int64_t low, std::int64_t high,
                   const std::string& field);
bool require_positive(ConfigCheck& check, double value, const std::string& field);
/// Below 1 in single precision too.
bool require_dropout(ConfigCheck& check, double value, const std::string& field = "dropout");
/// A matrix of at most kMaxTensorElements; both sizes are known to be at most 3 * kMaxSize.
bool require_tensor(ConfigCheck& check, std::int64_t rows, std::int64_t columns,
                    const std::string& field);
/// A layer of `size` `units`, such as "heads", divided into `pieces`; 0: automatic.
bool require_pieces(ConfigCheck& check, std::int64_t pieces, std::int64_t size,
                    const std::string& field, const char* units);
/// Checks the samples of a virtual node, given the size of a sample's largest activation. Throws
/// ConfigError (`train.batch_size`).
void check_vn_size(std::int64_t vn_size, std::int64_t elements_per_sample);

/// The largest power of two up to 8 that leaves each piece at least `least` of `size`.
std::int64_t pieces_for(std::int64_t size, std::int64_t least);

}  // namespace spillway::detail
