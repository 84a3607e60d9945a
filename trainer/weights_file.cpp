#include "trainer/weights_file.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>

#include "trainer/atomic_file.h"
#include "trainer/safetensors.h"
#include "trainer/xxh3.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little, "the hash is of little-endian bytes");

bool sizes_agree(const NamedArray& array) {
  std::size_t num_bytes = size_of(array.dtype);
  for (const auto dim : array.shape) num_bytes *= static_cast<std::size_t>(dim);
  return num_bytes == array.data.size();
}

std::vector<TensorEntry> entries_of(std::span<const NamedArray> arrays) {
  std::vector<TensorEntry> entries;
  for (const auto& array : arrays)
    entries.push_back(
        {.name = array.name, .dtype = safetensors_dtype(array.dtype), .shape = array.shape});
  place(entries);
  return entries;
}

}  // namespace

std::string weights_xxh3(std::span<const NamedArray> arrays) {
  Xxh3 hash;
  for (const auto& array : arrays) {
    assert(sizes_agree(array));
    const std::uint64_t rank = array.shape.size();
    hash.add(array.name.c_str(), array.name.size() + 1);
    hash.add(&rank, sizeof rank);
    hash.add(array.shape.data(), array.shape.size() * sizeof(std::int64_t));
    hash.add(array.data.data(), array.data.size());
  }
  return hash.hex();
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedArray> given,
                       FileSystem& files) {
  std::vector<NamedArray> arrays(given.begin(), given.end());
  std::ranges::stable_sort(arrays, std::ranges::greater(),
                           [](const NamedArray& array) { return size_of(array.dtype); });
  AtomicFile file(path, files);
  file.write(safetensors_header(entries_of(arrays)));
  for (const auto& array : arrays) {
    assert(sizes_agree(array));
    file.write(array.data);
  }
  file.commit();
}

}  // namespace spillway
