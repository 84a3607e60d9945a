#pragma once

#include <boost/functional/hash.hpp>
#include <compare>
#include <cstdint>
#include <string>

#include "core/base/fold.h"
#include "spillway/ids.h"
#include "spillway/units.h"

namespace spillway {

inline constexpr Bytes kNoHome = ~Bytes{0};

enum class BufferKind : std::uint8_t {
  weights,   ///< a layer's own parameters, or one tied parameter; read-only on devices
  sum,       ///< gradients and observations of one layer, summed: a slot of a cell's stack
  boundary,  ///< activation that crosses a cut, per virtual node
  gradient,  ///< gradient of a boundary from the shards behind a cut, per virtual node
  batch,     ///< part of the batch, per virtual node
  graph,     ///< autograd graph of a forward op, until its backward; LibTorch has the bytes
};

/// What one range of layers contributes to an edge: the sum of the terms of pieces `pieces` of the
/// layer that makes it, or, of its gradient, of the layer that reads it. Most edges have one part.
struct EdgePart {
  int edge = -1;
  LeafRange pieces;
  auto operator<=>(const EdgePart&) const = default;
};

/// Bytes that an op reads or writes on a device. `home` is an offset in the job's host memory.
struct BufferSpec {
  BufferKind kind = BufferKind::weights;
  Bytes bytes = 0;
  Bytes home_bytes = 0;  ///< the first bytes, which are kept at home; for a sum: once finished
  Bytes home = kNoHome;
  /// Where a sum is kept in between that several units add to: all its bytes. kNoHome: it stays.
  Bytes kept_home = kNoHome;
  EdgePart part;    ///< of the model: boundary, gradient, batch
  int shared = -1;  ///< among the job's shared blocks; -1: the bytes are the job's alone
};

/// Positions from here on are in blocks that jobs share, not in the job's own host memory.
inline constexpr Bytes kSharedHomes = Bytes{1} << 62;

/// Bytes that never change and that all jobs with a block of this content share.
struct SharedBlock {
  std::string content;
  Bytes home = 0;  ///< its position in the home of the job
  Bytes bytes = 0;
};

/// Stands for all jobs: BufferRef{kAllJobs, n} is shared block n.
inline constexpr JobId kAllJobs{0xFFFFFFFEu};

/// A buffer of a job, wherever its bytes are.
struct BufferRef {
  JobId job;
  int buffer = 0;
  auto operator<=>(const BufferRef&) const = default;
  friend std::size_t hash_value(BufferRef ref) {
    return boost::hash<std::uint64_t>()(std::uint64_t{ref.job.value} << 32 |
                                        static_cast<std::uint32_t>(ref.buffer));
  }
};

}  // namespace spillway
