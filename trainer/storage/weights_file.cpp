#include "trainer/storage/weights_file.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "core/base/xxh3.h"
#include "core/safetensors/safetensors.h"
#include "trainer/storage/atomic_file.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little, "the hash is of little-endian bytes");

bool sizes_agree(const NamedArray& array) {
  std::size_t num_bytes = size_of(array.dtype);
  for (const auto dim : array.shape) num_bytes *= static_cast<std::size_t>(dim);
  std::size_t num_given = 0;
  for (const auto part : array.data) num_given += part.size();
  return num_bytes == num_given;
}

/// Writes the bytes of an array, small parts together.
void write_data(const NamedArray& array, AtomicFile& file) {
  constexpr std::size_t kBlock = 1_MiB;
  std::vector<std::byte> block;
  const auto flush = [&] { file.write(std::exchange(block, {})); };
  for (const auto part : array.data) {
    if (block.size() + part.size() > kBlock && !block.empty()) flush();
    if (part.size() >= kBlock) {
      file.write(part);
    } else {
      block.insert(block.end(), part.begin(), part.end());
    }
  }
  if (!block.empty()) flush();
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

/// Hashes a tensor's name and shape, which precede its data.
void add_head(Xxh3& hash, const std::string& name, const std::vector<std::int64_t>& shape) {
  const std::uint64_t rank = shape.size();
  hash.add(name.c_str(), name.size() + 1);
  hash.add(&rank, sizeof rank);
  hash.add(shape.data(), shape.size() * sizeof(std::int64_t));
}

}  // namespace

std::string weights_xxh3(std::span<const NamedArray> arrays) {
  Xxh3 hash;
  for (const auto& array : arrays) {
    assert(sizes_agree(array));
    add_head(hash, array.name, array.shape);
    for (const auto part : array.data) hash.add(part.data(), part.size());
  }
  return hash.hex();
}

std::string xxh3_of_weights_file(const std::filesystem::path& path, FileSystem& files) {
  const Safetensors file(file_source(files, path));
  std::vector<std::byte> block(1_MiB);
  Xxh3 hash;
  for (const std::string& name : file.names()) {
    const TensorEntry& tensor = file.at(name);
    add_head(hash, name, tensor.shape);
    for (Bytes offset = 0; offset < tensor.bytes(); offset += block.size()) {
      const auto part = std::span(block).first(std::min(block.size(), tensor.bytes() - offset));
      file.read(tensor, offset, part);
      hash.add(part.data(), part.size());
    }
  }
  return hash.hex();
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedArray> arrays,
                       FileSystem& files) {
  const auto stored = by_element_size(arrays);
  AtomicFile file(path, files);
  file.write(safetensors_header(entries_of(arrays, stored)));
  for (const auto& array : stored) {
    assert(sizes_agree(array));
    write_data(array, file);
  }
  file.commit();
}

}  // namespace spillway
