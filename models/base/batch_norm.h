#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spillway/model.h"
#include "spillway/model_builder.h"

namespace spillway {

/// As torch::nn::BatchNorm1d, 2d and 3d with their defaults.
struct BatchNormConfig {
  double eps = 1e-5;
  double momentum = 0.1;
};

/// "NAME.weight" (ones) and "NAME.bias" (zeros), [C], without decay; the statistics
/// "NAME.running_mean" (zeros) and "NAME.running_var" (ones), [C], and "NAME.num_batches_tracked".
/// All are appended to `params`, or a piece of each (ModelBuilder::add_piece()); the first piece
/// has the count.
void add_batch_norm(ModelBuilder& model, std::vector<int>& params, const std::string& name,
                    const Dim& channel, const BatchNormConfig& config, int piece = 0,
                    int pieces = 1);

/// [B, C, ...] -> [B, C, ...], each channel normalised, then scaled and shifted. `params` are the
/// values of those that add_batch_norm() adds; weight and bias may be undefined. In training each
/// virtual node is normalised by its own mean and variance, and its mean and unbiased variance are
/// appended to `observations`; else by the running ones. In training B times the size of `...` must
/// be above 1.
///
/// Source: Ioffe and Szegedy, "Batch normalization", 2015.
at::Tensor batch_norm(const at::Tensor& x, std::span<const at::Tensor> params, double eps,
                      const LayerContext& context, std::vector<at::Tensor>& observations);

/// Batch normalization of pictures of which a layer has some rows only, in three steps.
///
/// 1. [B, C, H', W] -> [2, C] f32: mean and variance (not the unbiased one) of each channel of the
///    rows.
at::Tensor moments(const at::Tensor& x);
/// 2. All of these, with the share of the rows in all, -> [2, C] f32: what each channel is
///    multiplied by and what is added then. The rest is as in batch_norm(). `count`: values of a
///    channel.
///
/// Source of the sum: Chan, Golub and LeVeque, "Algorithms for computing the sample variance",
/// 1983.
at::Tensor batch_norm_factors(std::span<const at::Tensor> moments, std::span<const double> shares,
                              std::int64_t count, std::span<const at::Tensor> params, double eps,
                              const LayerContext& context, std::vector<at::Tensor>& observations);
/// 3. [B, C, H', W], and these factors -> the rows, normalised.
at::Tensor normalised(const at::Tensor& x, const at::Tensor& factors);

}  // namespace spillway
