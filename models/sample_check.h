#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/spec.h"

namespace spillway {

/// Sample `index` of the part that is trained or evaluated on.
struct SampleName {
  bool evaluation = false;
  std::uint64_t index = 0;
};

/// Throws ConfigError (`data`) where a number of `row` is none that ModelSpec::indices allows.
/// `dtype`: of the row's values, i64 or f32.
void check_sample(const ModelSpec& model, DType dtype, std::span<const std::byte> row,
                  SampleName name);

}  // namespace spillway
