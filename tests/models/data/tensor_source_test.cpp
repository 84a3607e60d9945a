#include "spillway/tensor_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"

namespace spillway {
namespace {

using testing::thrown;

template <typename Value>
std::vector<Value> row_of(const DataSource& source, std::uint64_t sample) {
  std::vector<Value> row(static_cast<std::size_t>(source.sample_elements()));
  source.read(sample, std::as_writable_bytes(std::span(row)));
  return row;
}

TEST(TensorSource, PlacesTargetsAfterInputs) {
  const auto inputs = at::arange(12, at::kFloat).view({3, 2, 2});
  const auto data = tensor_data(inputs, at::arange(3) + 7, 0.4);
  ASSERT_EQ(data->train->num_samples(), 2u);
  ASSERT_EQ(data->eval->num_samples(), 1u);
  EXPECT_EQ(data->train->dtype(), DType::f32);
  EXPECT_EQ(row_of<float>(*data->train, 1), (std::vector<float>{4, 5, 6, 7, 8}));
  EXPECT_EQ(row_of<float>(*data->eval, 0), (std::vector<float>{8, 9, 10, 11, 9}));
}

TEST(TensorSource, KeepsInt64Inputs) {
  const auto ids = at::arange(4).view({2, 2}) + (std::int64_t{1} << 40);
  const auto data = tensor_data(ids.t(), at::arange(2), 0);
  EXPECT_EQ(data->train->dtype(), DType::i64);
  EXPECT_EQ(data->eval, nullptr);
  const std::int64_t base = std::int64_t{1} << 40;
  EXPECT_EQ(row_of<std::int64_t>(*data->train, 1),
            (std::vector<std::int64_t>{base + 1, base + 3, 1}));
}

TEST(TensorSource, TakesACopy) {
  auto inputs = at::ones({2, 1});
  const auto data = tensor_data(inputs, at::ones({2, 1}), 0);
  inputs.zero_();
  EXPECT_EQ(row_of<float>(*data->train, 0), (std::vector<float>{1, 1}));
}

TEST(TensorRows, ReadsPartsOfSeveralTypesInPlace) {
  const auto ids = at::arange(4).view({2, 2}).to(at::kUInt16), flags = at::arange(2) == 0;
  const auto whole = tensor_rows({ids, flags});
  EXPECT_EQ(whole->dtype(), DType::i64);
  EXPECT_EQ(row_of<std::int64_t>(*whole, 0), (std::vector<std::int64_t>{0, 1, 1}));
  auto halves = at::full({2, 1}, 0.5, at::kBFloat16);
  const auto mixed = tensor_rows({ids, halves});
  EXPECT_EQ(mixed->dtype(), DType::f32);
  EXPECT_EQ(row_of<float>(*mixed, 1), (std::vector<float>{2, 3, 0.5}));
  halves.fill_(2);
  EXPECT_EQ(row_of<float>(*mixed, 1), (std::vector<float>{2, 3, 2}));
}

TEST(TensorRows, RefusesWhatItCannotReadExactly) {
  const auto floats = at::ones({2, 3});
  const auto problem = [](const auto& work) { return thrown<ConfigError>(work).problem; };
  EXPECT_EQ(problem([&] { tensor_rows({floats.to(at::kDouble)}); }),
            "has values of type Double, must be float32, float16, bfloat16, int64, int32, int16, "
            "uint16, uint8 or bool");
  EXPECT_EQ(problem([&] {
              tensor_rows({floats, at::ones({3})});
            }),
            "must have the same number of samples in each tensor, at least 1");
  const auto large = tensor_rows({floats, at::full({2}, 1 << 24, at::kLong)});
  EXPECT_EQ(problem([&] { row_of<float>(*large, 0); }),
            "has the integer 16777216 beside floating-point numbers, must be below 2^24");
}

TEST(TensorSource, RefusesOtherTensors) {
  const auto problem = [](const at::Tensor& inputs, const at::Tensor& targets) {
    const auto error = thrown<ConfigError>([&] { tensor_data(inputs, targets, 0); });
    EXPECT_EQ(error.field, "data");
    return error.problem;
  };
  const auto floats = at::ones({2, 3}), ids = floats.to(at::kLong);
  EXPECT_EQ(problem(floats.to(at::kDouble), ids), "inputs must be float32 or int64");
  EXPECT_EQ(problem(ids, floats), "targets must be int64, or float32 beside float32 inputs");
  EXPECT_EQ(problem(floats, ids + (1 << 24)),
            "int64 targets must be below 2^24 beside float32 inputs");
  for (const auto& targets : {at::ones({3}), at::ones({2, 0}), at::ones({})})
    EXPECT_EQ(problem(floats, targets),
              "inputs and targets must have the same number of samples, at least 1");
}

}  // namespace
}  // namespace spillway
