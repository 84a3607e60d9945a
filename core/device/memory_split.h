#pragma once

#include <algorithm>
#include <cmath>

#include "spillway/units.h"

namespace spillway {

/// How the memory of a device is divided between planned ranges and activations. If the system
/// allocates activations, only the sum of both is limited by the budget. On a GPU, activations get
/// a dedicated pool.
struct MemorySplit {
  double activation_share = 0;  ///< of the memory, below 1; 0: no dedicated pool

  bool dedicated_activations() const { return activation_share > 0; }
  Bytes activations(Bytes memory) const {
    return round_up(scaled(memory, activation_share), kPage);
  }
  Bytes planned(Bytes memory) const { return memory - activations(memory); }

  /// The least memory that holds `planned` bytes of ranges and `activations` bytes at once.
  Bytes needed(Bytes planned, Bytes activations) const {
    if (!dedicated_activations()) return planned + activations;
    const Bytes with_holes = activations + activations / kHoles + kSmallBlocks;
    return std::max(scaled(planned + kPage, 1 / (1 - activation_share)),
                    scaled(with_holes, 1 / activation_share));
  }

  bool operator==(const MemorySplit&) const = default;

 private:
  /// A pool fragments: one byte of holes for every kHoles bytes, and small blocks are rounded up.
  static constexpr Bytes kHoles = 8, kSmallBlocks = 64_KiB;

  static Bytes scaled(Bytes bytes, double factor) {
    return static_cast<Bytes>(std::ceil(static_cast<double>(bytes) * factor));
  }
};

}  // namespace spillway
