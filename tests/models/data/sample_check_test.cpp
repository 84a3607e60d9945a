#include "models/data/sample_check.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"

namespace spillway {
namespace {

using testing::thrown;

/// Values 1 and 2 choose one of 10.
const ModelSpec kModel{.indices = {{1, 3, 10}}};

template <typename Value>
void check(const std::vector<Value>& row, DType dtype, SampleName name = {}) {
  check_sample(kModel, dtype, std::as_bytes(std::span(row)), name);
}

TEST(SampleCheck, AcceptsEveryIndexBelowTheLimit) {
  check<std::int64_t>({-7, 0, 9, 1000}, DType::i64);
  check<float>({-7.5f, 0, 9, 1e9f}, DType::f32);
}

TEST(SampleCheck, RefusesIndicesOutOfRange) {
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{10}, std::int64_t{1} << 40}) {
    EXPECT_THROW(check<std::int64_t>({0, bad, 0, 0}, DType::i64), ConfigError) << bad;
    EXPECT_THROW(check<std::int64_t>({0, 0, bad, 0}, DType::i64), ConfigError) << bad;
  }
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {-1.0f, -0.5f, 2.5f, 10.0f, 1e30f, kNan}) {
    EXPECT_THROW(check<float>({0, 0, bad, 0}, DType::f32), ConfigError) << bad;
  }
}

TEST(SampleCheck, NamesTheSampleAndTheRemedy) {
  const auto refusal = thrown<ConfigError>([] {
    check<std::int64_t>({0, 0, 12, 0}, DType::i64, {true, 17});
  });
  EXPECT_EQ(refusal.field, "data");
  EXPECT_EQ(refusal.problem,
            "sample 17 for evaluation has 12 as value 2, where the model takes whole numbers from "
            "0 to 9; correct it, or give the model more classes or tokens");
}

}  // namespace
}  // namespace spillway
