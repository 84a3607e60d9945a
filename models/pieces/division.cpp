#include "models/pieces/division.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>

namespace spillway {

int dimension(std::int64_t argument, std::size_t rank) {
  return static_cast<int>(argument < 0 ? argument + static_cast<std::int64_t>(rank) : argument);
}

std::int64_t part_size(const Shape& shape, const Division& division, std::int64_t pieces) {
  const std::int64_t size = shape[static_cast<std::size_t>(division.dim)];
  const std::int64_t block = size / division.blocks;
  if (block % pieces != 0)
    throw Indivisible{fmt::format("{} cannot be divided by {}", block, pieces), true};
  return size / pieces;
}

Division before_reshape(const Shape& from, const Shape& to, const Division& division) {
  // Blocks of elements that follow each other; of each, a piece has a part.
  const std::int64_t blocks =
      std::accumulate(to.begin(), to.begin() + division.dim, division.blocks, std::multiplies<>());
  std::int64_t before = 1;
  for (std::size_t d = 0; d < from.size(); ++d) {
    const std::int64_t in_dim = before == 0 ? 0 : blocks / before;
    if (blocks % before == 0 && in_dim < from[d] && from[d] % in_dim == 0)
      return {static_cast<int>(d), in_dim};
    before *= from[d];
  }
  throw Indivisible{fmt::format("a reshape from [{}] to [{}] mixes what pieces share",
                                fmt::join(from, ", "), fmt::join(to, ", "))};
}

}  // namespace spillway
