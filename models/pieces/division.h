#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

using Shape = std::vector<std::int64_t>;

/// How pieces share a tensor: dimension `dim` consists of `blocks` of equal size, and each piece
/// has an equal part of each block.
struct Division {
  int dim = 0;
  std::int64_t blocks = 1;
  auto operator<=>(const Division&) const = default;
};

/// Why a graph cannot be divided: "aten::cumsum cannot work on parts".
struct Indivisible {
  std::string reason;
  /// What says most to a user, last.
  enum class Cause : std::uint8_t {
    structure,  ///< nothing that pieces could share is there
    operation,  ///< an operator, or how values depend on each other
    size        ///< another number of pieces may do
  } cause = Cause::operation;
};

/// The dimension that an argument means: -1 is the last of `rank`.
int dimension(std::int64_t argument, std::size_t rank);

/// The size of the part of a piece. Throws Indivisible if there are no equal parts of whole size.
std::int64_t part_size(const Shape& shape, const Division& division, std::int64_t pieces);

/// Where in a tensor the elements are that a reshape to `to` divides as `division` says. Throws
/// Indivisible if they are no division of `from`.
Division before_reshape(const Shape& from, const Shape& to, const Division& division);

}  // namespace spillway
