#include "spillway/tensor_source.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

/// Integers beside floating-point numbers are read exactly below this.
constexpr std::int64_t kExact = std::int64_t{1} << 24;

template <typename From>
void read_as(std::span<float> row, const From* values) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    if constexpr (std::is_integral_v<From>) {
      const auto value = static_cast<std::int64_t>(values[i]);
      if (value <= -kExact || value >= kExact) {
        throw ConfigError("data", 0,
                          fmt::format("has the integer {} beside floating-point numbers, must be "
                                      "below 2^24",
                                      value));
      }
    }
    row[i] = static_cast<float>(values[i]);
  }
}

template <typename From>
void read_as(std::span<std::int64_t> row, const From* values) {
  if constexpr (std::is_integral_v<From>) std::copy_n(values, row.size(), row.begin());
}

/// Calls `read` with the values of a tensor, of its type. Returns false for other types.
template <typename Read>
bool with_values(const at::Tensor& tensor, const Read& read) {
  const void* const values = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return read(static_cast<const float*>(values)), true;
    case at::kHalf:
      return read(static_cast<const at::Half*>(values)), true;
    case at::kBFloat16:
      return read(static_cast<const at::BFloat16*>(values)), true;
    case at::kLong:
      return read(static_cast<const std::int64_t*>(values)), true;
    case at::kInt:
      return read(static_cast<const std::int32_t*>(values)), true;
    case at::kShort:
      return read(static_cast<const std::int16_t*>(values)), true;
    case at::kUInt16:
      return read(static_cast<const std::uint16_t*>(values)), true;
    case at::kByte:
      return read(static_cast<const std::uint8_t*>(values)), true;
    case at::kBool:
      return read(static_cast<const bool*>(values)), true;
    default:
      return false;
  }
}

class TensorRows final : public DataSource {
 public:
  /// Contiguous tensors [N, ...] on the CPU.
  explicit TensorRows(std::vector<at::Tensor> parts) : parts_(std::move(parts)) {
    for (const at::Tensor& part : parts_) {
      elements_ += elements_of(part);
      if (part.is_floating_point()) dtype_ = DType::f32;
    }
  }

  std::uint64_t num_samples() const override {
    return static_cast<std::uint64_t>(parts_[0].size(0));
  }
  std::int64_t sample_elements() const override { return elements_; }
  DType dtype() const override { return dtype_; }
  void read(std::uint64_t index, std::span<std::byte> row) const override {
    if (dtype_ == DType::f32) {
      read_parts(index, values_of<float>(row));
    } else {
      read_parts(index, values_of<std::int64_t>(row));
    }
  }

 private:
  static std::int64_t elements_of(const at::Tensor& part) { return part.numel() / part.size(0); }

  template <typename Value>
  void read_parts(std::uint64_t index, std::span<Value> row) const {
    for (const at::Tensor& part : parts_) {
      const auto elements = static_cast<std::size_t>(elements_of(part));
      with_values(part, [&](const auto* values) {
        read_as(row.first(elements), values + index * elements);
      });
      row = row.subspan(elements);
    }
  }

  std::vector<at::Tensor> parts_;
  std::int64_t elements_ = 0;
  DType dtype_ = DType::i64;
};

void require(bool holds, const std::string& problem) {
  if (!holds) throw ConfigError("data", 0, problem);
}

at::Tensor flat(const at::Tensor& tensor) {
  return tensor.detach().cpu().reshape({tensor.size(0), -1});
}

void check(const at::Tensor& inputs, const at::Tensor& targets) {
  require(inputs.dim() > 0 && targets.dim() > 0 && inputs.numel() > 0 && targets.numel() > 0 &&
              inputs.size(0) == targets.size(0),
          "inputs and targets must have the same number of samples, at least 1");
  require(inputs.scalar_type() == at::kFloat || inputs.scalar_type() == at::kLong,
          "inputs must be float32 or int64");
  const bool whole = targets.scalar_type() == at::kLong;
  require(whole || targets.scalar_type() == inputs.scalar_type(),
          "targets must be int64, or float32 beside float32 inputs");
  require(inputs.scalar_type() == at::kLong || !whole ||
              targets.abs().max().item<std::int64_t>() < kExact,
          "int64 targets must be below 2^24 beside float32 inputs");
}

}  // namespace

std::shared_ptr<const DataSource> tensor_rows(std::vector<at::Tensor> parts) {
  require(!parts.empty(), "has no tensors; give at least one");
  for (at::Tensor& part : parts) {
    require(part.dim() > 0 && part.numel() > 0 && part.size(0) == parts[0].size(0),
            "must have the same number of samples in each tensor, at least 1");
    part = part.detach().cpu().contiguous();
    require(with_values(part, [](const auto*) {}),
            fmt::format("has values of type {}, must be float32, float16, bfloat16, int64, int32, "
                        "int16, uint16, uint8 or bool",
                        c10::toString(part.scalar_type())));
  }
  return std::make_shared<const TensorRows>(std::move(parts));
}

std::shared_ptr<const DataSplit> tensor_data(const at::Tensor& inputs, const at::Tensor& targets,
                                             double eval_fraction) {
  check(inputs, targets);
  const at::Tensor rows = at::cat({flat(inputs), flat(targets).to(inputs.scalar_type())}, 1);
  return std::make_shared<const DataSplit>(split(tensor_rows({rows}), eval_fraction));
}

}  // namespace spillway
