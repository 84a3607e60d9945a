#include "models/pieces/division.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <iterator>
#include <numeric>

namespace spillway {

int dimension(std::int64_t argument, std::size_t rank) {
  return static_cast<int>(argument < 0 ? argument + static_cast<std::int64_t>(rank) : argument);
}

std::int64_t part_size(const Shape& shape, const Division& division, std::int64_t pieces) {
  if (division.dim < 0 || division.dim >= std::ssize(shape))
    throw Indivisible{"pieces would share a dimension that a value does not have"};
  const std::int64_t size = shape[static_cast<std::size_t>(division.dim)];
  if (size == 0 || size % division.blocks != 0)
    throw Indivisible{"pieces would share blocks of different sizes"};
  const std::int64_t block = size / division.blocks;
  if (block % pieces != 0)
    throw Indivisible{fmt::format("{} cannot be divided by {}", block, pieces),
                      Indivisible::Cause::size};
  return size / pieces;
}

Division before_reshape(const Shape& from, const Shape& to, const Division& division) {
  // Blocks of elements that follow each other; of each, a piece has a part.
  const std::int64_t blocks =
      std::accumulate(to.begin(), to.begin() + division.dim, division.blocks, std::multiplies<>());
  std::int64_t before = 1;
  for (std::size_t d = 0; d < from.size() && blocks > 0; ++d) {
    const std::int64_t of_dim = blocks / before;
    if (blocks % before == 0 && of_dim < from[d] && from[d] % of_dim == 0)
      return {static_cast<int>(d), of_dim};
    before *= from[d];
    if (before == 0) break;
  }
  throw Indivisible{fmt::format("a reshape from [{}] to [{}] mixes what pieces share",
                                fmt::join(from, ", "), fmt::join(to, ", "))};
}

}  // namespace spillway
