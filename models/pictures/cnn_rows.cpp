#include "models/pictures/cnn_rows.h"

#include <algorithm>

namespace spillway {
namespace {

bool has_window(const CnnStep& step) {
  using enum CnnLayerType;
  const CnnLayerType type = step.layer.type;
  return type == conv || type == max_pool || type == avg_pool;
}

}  // namespace

RowRange rows_of_piece(std::int64_t height, int piece, int pieces) {
  return {height * piece / pieces, height * (piece + 1) / pieces};
}

RowWindow window_for(const CnnStep& step, const RowRange& output) {
  if (!has_window(step)) return {.rows = output};
  const CnnLayerConfig& layer = step.layer;
  const std::int64_t stride = layer.stride[0], padding = layer.padding[0];
  const std::int64_t begin = output.begin * stride - padding;
  // Rows that no window needs are read too, so that each row has a reader. They are fewer than a
  // stride.
  const bool is_last = output.end == step.out.height;
  const std::int64_t next = is_last ? step.in.height : output.end * stride - padding;
  const std::int64_t end =
      std::max(next, begin + (output.size() - 1) * stride + layer.kernel_size[0]);
  const RowRange rows{std::max<std::int64_t>(begin, 0), std::min(end, step.in.height)};
  return {.rows = rows, .above = rows.begin - begin, .below = end - rows.end};
}

bool can_divide_rows(const CnnStep& step) {
  const bool is_linear = step.layer.type == CnnLayerType::linear;
  if (is_linear || step.out.is_flat || step.out.height == 1) return false;
  // Else some rows of the output would read padding alone.
  if (has_window(step) && step.layer.padding[0] >= step.layer.kernel_size[0]) return false;
  return std::ranges::all_of(step.terms, [](const auto& term) {
    return std::ranges::all_of(
        term, [](const CnnSource& source) { return source.pool == CnnPool::none && !source.flat; });
  });
}

}  // namespace spillway
