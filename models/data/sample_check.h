#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/data_source.h"
#include "spillway/spec.h"

namespace spillway {

/// Throws ConfigError (`data`) unless each sample of both parts has the values, in number and type,
/// that the model takes, whose virtual nodes have `vn_size` samples.
void check_shape(const DataSplit& data, const ModelSpec& model, std::int64_t vn_size);

/// Sample `index` of the part that is trained or evaluated on.
struct SampleName {
  bool evaluation = false;
  std::uint64_t index = 0;
};

/// Throws ConfigError (`data`) where a number of `row` is none that ModelSpec::indices allows. The
/// row is shaped as by check_shape(); `dtype`: of its values, i64 or f32.
void check_sample(const ModelSpec& model, DType dtype, std::span<const std::byte> row,
                  SampleName name);

}  // namespace spillway
