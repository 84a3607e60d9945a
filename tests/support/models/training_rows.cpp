#include "tests/support/models/training_rows.h"

#include <ATen/ATen.h>

#include "spillway/data_source.h"

namespace spillway::testing {

at::Tensor rows_of(const TrialConfig& trial, std::int64_t first, std::int64_t size,
                   bool evaluation) {
  const DataSource& data = evaluation ? *trial.data->eval : *trial.data->train;
  auto rows = at::empty({size, data.sample_elements()},
                        data.dtype() == DType::f32 ? at::kFloat : at::kLong);
  for (std::int64_t i = 0; i < size; ++i) {
    const auto position = static_cast<std::uint64_t>(first + i);
    auto row = rows[i];
    data.read(evaluation ? position : sample_at(position, data.num_samples(), trial.train.seed),
              {static_cast<std::byte*>(row.mutable_data_ptr()), row.nbytes()});
  }
  return rows;
}

}  // namespace spillway::testing
