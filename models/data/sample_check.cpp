#include "models/data/sample_check.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>
#include <string>

#include "spillway/error.h"

namespace spillway {
namespace {

std::string described(std::int64_t elements, DType dtype) {
  return fmt::format("{} {} values", elements, dtype == DType::f32 ? "float32" : "int64");
}

void check_shape(const DataSource& data, const ModelSpec& model, std::int64_t vn_size) {
  for (const EdgeSpec& edge : model.edges) {
    if (edge.producer >= 0) continue;
    const std::int64_t elements = edge.tensor.elements() / vn_size;
    if (elements == data.sample_elements() && edge.tensor.dtype == data.dtype()) continue;
    throw ConfigError("data", 0,
                      fmt::format("samples have {}, model {} expects {}",
                                  described(data.sample_elements(), data.dtype()), model.family,
                                  described(elements, edge.tensor.dtype)));
  }
}

bool is_index(std::int64_t value, std::int64_t limit) { return value >= 0 && value < limit; }
bool is_index(float value, std::int64_t limit) {
  return value >= 0 && value < static_cast<float>(limit) && value == std::trunc(value);
}

template <typename Value>
void check_range(const IndexRange& range, std::span<const std::byte> row, SampleName name) {
  const auto* const values = reinterpret_cast<const Value*>(row.data());
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    if (is_index(values[i], range.limit)) continue;
    std::ostringstream problem;
    problem << "sample " << name.index << " for " << (name.evaluation ? "evaluation" : "training")
            << " has " << values[i] << " as value " << i
            << ", where the model takes whole numbers from 0 to " << range.limit - 1
            << "; correct it, or give the model more classes or tokens";
    throw ConfigError("data", 0, problem.str());
  }
}

}  // namespace

void check_shape(const DataSplit& data, const ModelSpec& model, std::int64_t vn_size) {
  check_shape(*data.train, model, vn_size);
  if (data.eval) check_shape(*data.eval, model, vn_size);
}

void check_sample(const ModelSpec& model, DType dtype, std::span<const std::byte> row,
                  SampleName name) {
  for (const IndexRange& range : model.indices) {
    if (dtype == DType::f32) {
      check_range<float>(range, row, name);
    } else {
      check_range<std::int64_t>(range, row, name);
    }
  }
}

}  // namespace spillway
