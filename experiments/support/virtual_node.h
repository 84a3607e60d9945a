#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "spillway/data_source.h"
#include "spillway/trial_config.h"
#include "trainer/compute/range_runner.h"

/// Helpers for a plain training loop over virtual nodes.
namespace spillway::experiments {

/// Writes the samples of one virtual node of a step, row by row, in a session's order.
inline void read_samples(const TrialConfig& trial, std::int64_t step, int vn, std::byte* rows) {
  const DataSource& source = *trial.data->train;
  const std::size_t row_bytes =
      static_cast<std::size_t>(source.sample_elements()) * size_of(source.dtype());
  const std::int64_t vn_size = trial.train.batch_size / trial.train.virtual_nodes;
  auto position = static_cast<std::uint64_t>(step * trial.train.batch_size + vn * vn_size);
  for (std::int64_t i = 0; i < vn_size; ++i, rows += row_bytes, ++position) {
    source.read(sample_at(position, source.num_samples(), trial.train.seed), {rows, row_bytes});
  }
}

inline RangeRunner::EdgeMemory some_of(const RangeRunner::EdgeMemory& all,
                                       const std::vector<int>& edges) {
  RangeRunner::EdgeMemory some;
  for (int e : edges) some[{e, {}}] = all.at({e, {}});
  return some;
}

}  // namespace spillway::experiments
