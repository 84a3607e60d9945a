#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "spillway/data_source.h"
#include "spillway/trial_config.h"

namespace spillway::testing {

/// Samples [first, first + size) in the order of the trial, or of its evaluation.
inline torch::Tensor rows_of(const TrialConfig& trial, std::int64_t first, std::int64_t size,
                             bool evaluation = false) {
  const DataSource& data = evaluation ? *trial.data->eval : *trial.data->train;
  auto rows = torch::empty({size, data.sample_elements()},
                           data.dtype() == DType::f32 ? torch::kFloat32 : torch::kInt64);
  for (std::int64_t i = 0; i < size; ++i) {
    const auto position = static_cast<std::uint64_t>(first + i);
    auto row = rows[i];
    data.read(evaluation ? position : sample_at(position, data.num_samples(), trial.train.seed),
              {static_cast<std::byte*>(row.mutable_data_ptr()), row.nbytes()});
  }
  return rows;
}

}  // namespace spillway::testing
