#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "spillway/exported.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/exported_net.h"
#include "tests/support/models/run_layers.h"
#include "tests/support/models/whole_tensors.h"

/// Compares models in pieces with undivided ones.
namespace spillway::testing {

/// A model with its initial values, of a file that is removed at the end.
struct Divided {
  Divided(const ExportedNet& net, const TorchPieces& pieces, std::int64_t samples = 2)
      : model(exported_factory(folder.write("net.spw", net.bytes()), pieces)(samples)),
        params(initial_values(*model)) {}

  LayersResult run(const at::Tensor& rows, bool training = true) const {
    return run_layers(*model, params, rows, training);
  }

  TemporaryFolder folder;
  std::unique_ptr<Model> model;
  std::vector<at::Tensor> params;
};

inline std::map<std::string, at::Tensor> gradients(const Divided& divided) {
  std::vector<at::Tensor> of_params;
  for (const at::Tensor& param : divided.params) {  // some are read by no operator
    of_params.push_back(param.grad().defined() ? param.grad() : at::zeros_like(param));
  }
  return whole_tensors(divided.model->spec, of_params);
}

/// Loss, gradients, and the metrics of an evaluation, up to rounding.
inline void expect_same_in_pieces(const at::Tensor& rows, const ExportedNet& net,
                                  const TorchPieces& pieces) {
  const Divided one(net, {}), other(net, pieces);
  EXPECT_GT(other.model->layers.size(), one.model->layers.size());
  for (const auto& [name, value] : whole_tensors(other.model->spec, other.params)) {
    EXPECT_TRUE(value.equal(whole_tensors(one.model->spec, one.params).at(name))) << name;
  }
  const LayersResult loss = one.run(rows), divided = other.run(rows);
  EXPECT_EQ(divided.last.weight, loss.last.weight);
  EXPECT_LT(relative_difference(divided.last.output, loss.last.output), 1e-6);
  loss.last.output.backward();
  divided.last.output.backward();
  const auto expected = gradients(one);
  for (const auto& [name, gradient] : gradients(other)) {
    const double scale = expected.at(name).norm().item<double>();
    EXPECT_LE((gradient - expected.at(name)).norm().item<double>(), 1e-5 * scale) << name;
  }
  const LayersResult evaluated = one.run(rows, false), result = other.run(rows, false);
  EXPECT_LT(relative_difference(result.last.output, evaluated.last.output), 1e-6);
  if (evaluated.last.metrics.defined()) {
    EXPECT_TRUE(result.last.metrics.equal(evaluated.last.metrics));
  }
}

}  // namespace spillway::testing
