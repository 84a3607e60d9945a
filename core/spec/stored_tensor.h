#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "spillway/spec.h"

namespace spillway {

/// A tensor as files, patterns and results name it.
struct StoredTensor {
  std::string name;
  TensorSpec tensor;        ///< of all its elements, as ParamSpec::master()
  std::vector<int> params;  ///< that hold it, ascending: one, or one of each piece
};

/// All of a model, in the order of their first parameters. Throws Error if parameters that name the
/// same tensor do not make it up.
std::vector<StoredTensor> stored_tensors(const ModelSpec& model);

/// Whether checkpoints leave it out: training never changes it, and the model can write it again.
inline bool is_constant(const ParamSpec& param) {
  return param.can_be_shared() && param.stored.name.empty();
}

/// By parameter: the position of its stored tensor among them.
std::vector<std::size_t> tensor_numbers(const ModelSpec& model);

/// Elements that are consecutive both in a parameter and in its stored tensor.
struct StoredRun {
  std::int64_t in_param = 0, in_tensor = 0;  ///< positions of the first
  std::int64_t length = 0;
};

/// Calls `take` for the runs of a parameter among elements [begin, end) of its stored tensor,
/// ascending.
template <typename Take>
void for_each_run(const ParamSpec& param, std::int64_t begin, std::int64_t end, const Take& take) {
  const StoredSlice& slice = param.stored;
  const std::int64_t elements = param.tensor.elements();
  if (slice.name.empty()) return take(StoredRun{begin, begin, std::min(end, elements) - begin});
  const std::int64_t inner = elements / (slice.outer * (slice.end - slice.begin));
  const std::int64_t row = slice.size * inner, first = slice.begin * inner;
  const std::int64_t length = (slice.end - slice.begin) * inner;
  for (std::int64_t o = begin / row; o < slice.outer && o * row + first < end; ++o) {
    const std::int64_t from = std::max(o * row + first, begin);
    const std::int64_t to = std::min(o * row + first + length, end);
    if (from < to) take(StoredRun{o * length + from - (o * row + first), from, to - from});
  }
}

/// All runs of a parameter.
template <typename Take>
void for_each_run(const ParamSpec& param, const Take& take) {
  const StoredSlice& slice = param.stored;
  const std::int64_t part = slice.name.empty() ? slice.size : slice.end - slice.begin;
  for_each_run(param, 0, param.tensor.elements() / part * slice.size, take);
}

}  // namespace spillway
