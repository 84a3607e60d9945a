#include "trainer/storage/weights_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/xxh3.h"
#include "spillway/error.h"
#include "trainer/storage/atomic_file.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little, "the hash is of little-endian bytes");

/// Calls `take(block)` for the bytes of an array.
template <typename Take>
void for_each_block(const NamedArray& array, const Take& take) {
  Bytes bytes = size_of(array.dtype);
  for (const std::int64_t dim : array.shape) bytes *= static_cast<Bytes>(dim);
  std::vector<std::byte> room(std::min<Bytes>(bytes, 1_MiB));
  for (Bytes offset = 0; offset < bytes; offset += room.size()) {
    const auto block = std::span(room).first(std::min(room.size(), bytes - offset));
    array.read(block, offset);
    take(std::span<const std::byte>(block));
  }
}

/// Larger elements first.
std::vector<NamedArray> by_element_size(std::span<const NamedArray> arrays) {
  std::vector<NamedArray> sorted(arrays.begin(), arrays.end());
  std::ranges::stable_sort(sorted, std::ranges::greater(),
                           [](const NamedArray& array) { return size_of(array.dtype); });
  return sorted;
}

/// Entries in the order of `listed`; their bytes are in the order of `stored`.
std::vector<TensorEntry> entries_of(std::span<const NamedArray> listed,
                                    std::span<const NamedArray> stored) {
  std::vector<TensorEntry> entries;
  for (const auto& array : stored)
    entries.push_back(
        {.name = array.name, .dtype = safetensors_dtype(array.dtype), .shape = array.shape});
  place(entries);
  std::map<std::string_view, std::size_t> rank;
  for (std::size_t i = 0; i < listed.size(); ++i) rank[listed[i].name] = i;
  std::ranges::sort(entries, {}, [&](const TensorEntry& entry) { return rank.at(entry.name); });
  return entries;
}

}  // namespace

NamedArray array_of(std::string name, std::vector<std::int64_t> shape,
                    std::span<const std::byte> bytes, DType dtype) {
  return {std::move(name), std::move(shape), dtype,
          [bytes](std::span<std::byte> into, Bytes offset) {
            assert(offset + into.size() <= bytes.size());
            std::ranges::copy(bytes.subspan(offset, into.size()), into.begin());
          }};
}

std::string weights_xxh3(std::span<const NamedArray> arrays) {
  Xxh3 hash;
  for (const auto& array : arrays) {
    const std::uint64_t rank = array.shape.size();
    hash.add(array.name.c_str(), array.name.size() + 1);
    hash.add(&rank, sizeof rank);
    hash.add(array.shape.data(), array.shape.size() * sizeof(std::int64_t));
    for_each_block(array, [&](auto block) { hash.add(block.data(), block.size()); });
  }
  return hash.hex();
}

std::vector<NamedArray> arrays_in(ByteSource source) {
  const auto file = std::make_shared<const Safetensors>(std::move(source));
  std::vector<NamedArray> arrays;
  for (const std::string& name : file->names()) {
    const TensorEntry& tensor = file->at(name);
    const bool is_f32 = tensor.dtype == safetensors_dtype(DType::f32);
    if (!is_f32 && tensor.dtype != safetensors_dtype(DType::i64)) {
      throw CorruptData(name, fmt::format("has the type {}, not F32 or I64", tensor.dtype));
    }
    arrays.push_back({name, tensor.shape, is_f32 ? DType::f32 : DType::i64,
                      [file, &tensor](std::span<std::byte> into, Bytes offset) {
                        file->read(tensor, offset, into);
                      }});
  }
  return arrays;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedArray> arrays,
                       FileSystem& files) {
  const auto stored = by_element_size(arrays);
  AtomicFile file(path, files);
  file.write(safetensors_header(entries_of(arrays, stored)));
  for (const auto& array : stored) {
    for_each_block(array, [&](auto block) { file.write(block); });
  }
  file.commit();
}

}  // namespace spillway
