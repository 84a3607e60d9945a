#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/data_source.h"
#include "spillway/spec.h"

namespace spillway {

/// Throws ConfigError (`data`) unless the samples of both parts have the number and type of values
/// that the model expects. Its virtual nodes have `vn_size` samples.
void check_shape(const DataSplit& data, const ModelSpec& model, std::int64_t vn_size);

/// Sample `index` of the part that is trained or evaluated on.
struct SampleName {
  bool evaluation = false;
  std::uint64_t index = 0;
};

/// Throws ConfigError (`data`) if a value of `row` is outside its ModelSpec::indices. The row has
/// passed check_shape(); its values are i64 or f32.
void check_sample(const ModelSpec& model, DType dtype, std::span<const std::byte> row,
                  SampleName name);

}  // namespace spillway
