#pragma once

#include <cstdint>
#include <string>

/// Checks of what a configuration says about a model. Each throws ConfigError naming `model.` and
/// the field (check_vn_size(): `train.batch_size`), the value and the remedy.
namespace spillway::detail {

/// Elements that one tensor of a model may have: what one random draw covers (core/kernels.h).
inline constexpr std::int64_t kMaxTensorElements = std::int64_t{1} << 34;
inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxLayers = std::int64_t{1} << 16;

void require(bool holds, const std::string& field, const std::string& problem);
void require_range(std::int64_t value, std::int64_t low, std::int64_t high,
                   const std::string& field);
void require_positive(double value, const std::string& field);
/// At least 0 and below 1.
void require_dropout(double value);
/// A matrix of at most kMaxTensorElements; both sizes are known to be at most 3 * kMaxSize.
void require_tensor(std::int64_t rows, std::int64_t columns, const std::string& field);
/// Samples of a virtual node, where the largest activation of one has so many elements.
void check_vn_size(std::int64_t vn_size, std::int64_t elements_per_sample);

}  // namespace spillway::detail
