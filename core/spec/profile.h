#pragma once

#include <array>
#include <vector>

#include "spillway/units.h"

namespace spillway {

/// The cost of one layer for one virtual node on one device kind.
///
/// Peaks are bytes of activations on top of those allocated before the call. They include outputs
/// but not the layer's inputs, weights and gradient sums.
struct LayerProfile {
  double forward_s = 0;      ///< forward without a graph
  double backward_s = 0;     ///< forward with a graph, then backward, gradients folded
  double merge_s = 0;        ///< adding the sums of a reduction group to those of another
  Bytes forward_peak = 0;    ///< during forward without a graph
  Bytes graph_peak = 0;      ///< during forward with a graph
  Bytes graph_retained = 0;  ///< after forward with a graph: output and saved tensors
  Bytes backward_peak = 0;   ///< during backward, counted from before the layer's forward
};

/// The numbers of consecutive virtual nodes that a pilot measures on each kind of device.
inline constexpr std::array kPilotSizes{1, 2, 4};

/// Seconds of one layer on one kind of device, by kPilotSizes; as in LayerProfile.
struct LayerTimes {
  std::array<double, kPilotSizes.size()> forward_s{}, backward_s{};
  bool operator==(const LayerTimes&) const = default;
};

/// The cost of a job on a device kind: measured by a pilot before the run, or estimated.
struct Profile {
  std::vector<LayerProfile> layers;  ///< one per layer of the model
  double copy_bytes_per_s = 8e9;     ///< one link, one direction
  double update_bytes_per_s = 4e9;   ///< optimizer: bytes of weights updated per second
  double reduce_bytes_per_s = 8e9;   ///< norm and tree sums: bytes of gradient per second
  double load_s = 1e-4;              ///< reading the batch of one step
};

}  // namespace spillway
