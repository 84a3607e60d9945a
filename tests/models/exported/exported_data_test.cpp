#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spillway/data_source.h"
#include "spillway/error.h"
#include "spillway/exported.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/exported_net.h"

namespace spillway::testing {
namespace {

class ExportedData : public ::testing::Test {
 protected:
  std::shared_ptr<const DataSplit> open(const NamedTensors& tensors, double eval_fraction = 0) {
    return exported_data(folder_.write("data", exported_file("", tensors)), info_, eval_fraction);
  }
  std::string problem_of(const NamedTensors& tensors) {
    const auto error = thrown<ConfigError>([&] {
      std::vector<std::byte> row((kNetInputs + 1) * sizeof(float));
      open(tensors)->train->read(0, row);
    });
    EXPECT_EQ(error.field, "data.path");
    return error.problem;
  }

  const TemporaryFolder folder_;
  const ExportedInfo info_ = exported_info(folder_.write("net.spw", exported_net().bytes()));
};

TEST_F(ExportedData, ReadsATensorForEachInput) {
  const auto x = made_up({10, kNetInputs}, 0);
  const auto classes = at::arange(10).remainder(kNetClasses);
  for (const auto& whole : {classes, classes.to(at::kInt)}) {
    const auto data = open({{"class", whole}, {"x", x}}, 0.2);
    EXPECT_EQ(data->train->num_samples(), 8u);
    EXPECT_EQ(data->eval->num_samples(), 2u);
    std::vector<std::byte> rows(3 * (kNetInputs + 1) * sizeof(float));
    data->train->read_rows(2, rows);
    const auto all = at::cat({x, classes.to(at::kFloat).unsqueeze(1)}, 1);
    EXPECT_TRUE(at::from_blob(rows.data(), {3, kNetInputs + 1}).equal(all.narrow(0, 2, 3)));
  }
}

TEST_F(ExportedData, ReadsRows) {
  const auto rows = made_up({4, kNetInputs + 1}, 0);
  std::vector<std::byte> row((kNetInputs + 1) * sizeof(float));
  open({{"rows", rows}})->train->read(3, row);
  EXPECT_TRUE(at::from_blob(row.data(), {kNetInputs + 1}).equal(rows[3]));
}

TEST_F(ExportedData, RefusesOtherTensors) {
  const auto x = at::zeros({4, kNetInputs}), classes = at::zeros({4}, at::kLong);
  const auto expect = [&](const NamedTensors& tensors, const std::string& expected) {
    const std::string said = problem_of(tensors);
    EXPECT_NE(said.find(expected), std::string::npos) << said;
  };
  expect({{"x", x}}, "input 'class' of the model: no tensor has this name");
  expect({{"x", x}, {"y", classes}}, "has the tensor 'y', but the model's inputs are x, class");
  expect({{"x", x}, {"class", classes.narrow(0, 0, 3)}}, "it has 3 samples, but 'x' has 4");
  expect({{"x", x.view({4, 2, 4})}, {"class", classes}},
         "its shape is [4, 2, 4], must be [samples, 8]");
  expect({{"x", x.to(at::kDouble)}, {"class", classes}}, "its type is F64, must be F32, I64");
  expect({{"x", x}, {"class", classes + (1 << 25)}},
         "tensor 'class' has 33554432, which a float32 row does not hold exactly");
}

}  // namespace
}  // namespace spillway::testing
