#include "core/spec/stored_tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"

namespace spillway {
namespace {

using testing::thrown;

/// Part [begin, end) of the middle dimension of "w" [2, 6, 3], as the piece `i`.
ParamSpec part_of(std::int64_t begin, std::int64_t end, int i) {
  return {.name = "w/" + std::to_string(i),
          .tensor = {DType::f32, {{"rows", 2 * (end - begin)}, {"columns", 3}}},
          .stored = {.name = "w",
                     .dims = {{"rows", 12}, {"columns", 3}},
                     .outer = 2,
                     .size = 6,
                     .begin = begin,
                     .end = end}};
}

ModelSpec model_of(std::vector<ParamSpec> params) {
  ModelSpec model{.family = "test"};
  model.params = std::move(params);
  return model;
}

const ParamSpec kBias{.name = "b", .tensor = {DType::f32, {{"rows", 4}}}};

TEST(StoredTensor, IsMadeUpOfItsParts) {
  const ModelSpec model = model_of({part_of(0, 1, 0), kBias, part_of(1, 4, 1), part_of(4, 6, 2)});
  const std::vector<StoredTensor> tensors = stored_tensors(model);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "w");
  EXPECT_EQ(tensors[0].tensor.shape(), (std::vector<std::int64_t>{12, 3}));
  EXPECT_EQ(tensors[0].params, (std::vector{0, 2, 3}));
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].params, std::vector{1});
  EXPECT_EQ(tensor_numbers(model), (std::vector<std::size_t>{0, 1, 0, 0}));
}

TEST(StoredTensor, RejectsPartsThatDoNotMakeItUp) {
  const ModelSpec model = model_of({part_of(0, 1, 0), part_of(1, 4, 1)});
  EXPECT_STREQ(thrown<Error>([&] { stored_tensors(model); }).what(),
               "model test: the parts of tensor w have 24 elements, not 36");
}

/// Every element of a window comes once, from the part that holds it.
TEST(StoredTensor, HasRunsForEveryWindow) {
  const std::vector<ParamSpec> parts{part_of(0, 1, 0), part_of(1, 4, 1), part_of(4, 6, 2)};
  std::vector<std::vector<int>> values;  // the position in the tensor, by part and position there
  for (const ParamSpec& part : parts) {
    std::vector<int>& own = values.emplace_back();
    for (std::int64_t o = 0; o < 2; ++o) {
      for (std::int64_t i = part.stored.begin * 3; i < part.stored.end * 3; ++i) {
        own.push_back(static_cast<int>(o * 18 + i));
      }
    }
  }
  for (std::int64_t begin = 0; begin < 36; ++begin) {
    for (std::int64_t end = begin + 1; end <= 36; ++end) {
      std::vector<int> found(static_cast<std::size_t>(end - begin), -1);
      for (std::size_t p = 0; p < parts.size(); ++p) {
        for_each_run(parts[p], begin, end, [&](const StoredRun& run) {
          for (std::int64_t i = 0; i < run.length; ++i) {
            int& place = found.at(static_cast<std::size_t>(run.in_tensor + i - begin));
            EXPECT_EQ(place, -1);
            place = values[p].at(static_cast<std::size_t>(run.in_param + i));
          }
        });
      }
      std::vector<int> expected(found.size());
      std::iota(expected.begin(), expected.end(), static_cast<int>(begin));
      ASSERT_EQ(found, expected) << begin << " to " << end;
    }
  }
}

TEST(StoredTensor, HasOneRunForAWholeParameter) {
  std::vector<std::int64_t> lengths;
  for_each_run(kBias, [&](const StoredRun& run) { lengths.push_back(run.length); });
  EXPECT_EQ(lengths, std::vector<std::int64_t>{4});
}

}  // namespace
}  // namespace spillway
