#include "spillway/tensor_source.h"

#include <ATen/ops/cat.h>

#include <cstring>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

class TensorSource final : public DataSource {
 public:
  explicit TensorSource(at::Tensor rows) : rows_(std::move(rows)) {}

  std::uint64_t num_samples() const override { return static_cast<std::uint64_t>(rows_.size(0)); }
  std::int64_t sample_elements() const override { return rows_.size(1); }
  DType dtype() const override {
    return rows_.scalar_type() == at::kFloat ? DType::f32 : DType::i64;
  }
  void read(std::uint64_t index, std::span<std::byte> row) const override {
    std::memcpy(row.data(),
                static_cast<const std::byte*>(rows_.const_data_ptr()) + index * row.size(),
                row.size());
  }

 private:
  at::Tensor rows_;  // [N, elements], contiguous
};

void require(bool holds, const std::string& problem) {
  if (!holds) throw ConfigError("data", 0, problem);
}

at::Tensor flat(const at::Tensor& tensor) {
  return tensor.detach().cpu().reshape({tensor.size(0), -1});
}

void check(const at::Tensor& inputs, const at::Tensor& targets) {
  constexpr std::int64_t kExact = std::int64_t{1} << 24;
  require(inputs.dim() > 0 && targets.dim() > 0 && inputs.numel() > 0 && targets.numel() > 0 &&
              inputs.size(0) == targets.size(0),
          "inputs and targets must have one sample or more, and as many of each");
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

std::shared_ptr<const DataSplit> tensor_data(const at::Tensor& inputs, const at::Tensor& targets,
                                             double eval_fraction) {
  check(inputs, targets);
  const at::Tensor rows = at::cat({flat(inputs), flat(targets).to(inputs.scalar_type())}, 1);
  return std::make_shared<const DataSplit>(
      split(std::make_shared<TensorSource>(rows.contiguous()), eval_fraction));
}

}  // namespace spillway
