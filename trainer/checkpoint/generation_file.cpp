#include "trainer/checkpoint/generation_file.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace spillway {
namespace {

/// The part of a block from `offset` that lies in `[begin, end)` of a file: its place in both.
struct Overlap {
  Bytes in_part = 0;
  std::span<std::byte> in_block;
};

Overlap overlap(std::span<std::byte> block, Bytes offset, Bytes begin, Bytes end) {
  const Bytes from = std::max(offset, begin), to = std::min(offset + block.size(), end);
  if (from >= to) return {};
  return {from - begin, block.subspan(from - offset, to - from)};
}

void copy(const std::string& bytes, const Overlap& part) {
  if (!part.in_block.empty())
    std::memcpy(part.in_block.data(), bytes.data() + part.in_part, part.in_block.size());
}

}  // namespace

GenerationFile bytes_file(std::string name, std::string bytes) {
  const Bytes size = bytes.size();
  return {std::move(name), size, [bytes = std::move(bytes)](auto block, Bytes offset) {
            copy(bytes, overlap(block, offset, 0, bytes.size()));
          }};
}

GenerationFile safetensors_file(
    std::string name, std::vector<TensorEntry> tensors,
    std::function<void(const TensorEntry&, std::span<std::byte> into, Bytes offset)> fill) {
  std::ranges::stable_sort(tensors, std::ranges::greater(),
                           [](const TensorEntry& tensor) { return element_bytes(tensor.dtype); });
  place(tensors);
  const std::string header = safetensors_header(tensors);
  const Bytes size = header.size() + (tensors.empty() ? 0 : tensors.back().end);
  auto fill_block = [tensors = std::move(tensors), header, fill = std::move(fill)](
                        std::span<std::byte> block, Bytes offset) {
    copy(header, overlap(block, offset, 0, header.size()));
    auto at = std::ranges::partition_point(
        tensors, [&](const TensorEntry& tensor) { return header.size() + tensor.end <= offset; });
    for (; at != tensors.end() && header.size() + at->begin < offset + block.size(); ++at) {
      const auto part = overlap(block, offset, header.size() + at->begin, header.size() + at->end);
      if (!part.in_block.empty()) fill(*at, part.in_block, part.in_part);
    }
  };
  return {std::move(name), size, std::move(fill_block)};
}

}  // namespace spillway
