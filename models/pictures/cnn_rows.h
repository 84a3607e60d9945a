#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/pictures/cnn_graph.h"

/// Layers of convolutional networks that are divided by the rows of their pictures.
namespace spillway {

/// Rows [begin, end) of pictures.
struct RowRange {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return std::max<std::int64_t>(0, end - begin); }
  /// Those that are in `other` too, counted from its begin.
  RowRange inside(const RowRange& other) const {
    return {std::max(begin, other.begin) - other.begin, std::min(end, other.end) - other.begin};
  }
  auto operator<=>(const RowRange&) const = default;
};

/// The rows of a piece.
RowRange rows_of_piece(std::int64_t height, int piece, int pieces);

/// What a layer reads for some rows of its output.
struct RowWindow {
  RowRange rows;                      ///< of the input
  std::int64_t above = 0, below = 0;  ///< rows of padding
};
RowWindow window_for(const CnnStep& step, const RowRange& output);

/// Whether each row of the output depends on some rows of the input only.
bool can_divide_rows(const CnnStep& step);

}  // namespace spillway
