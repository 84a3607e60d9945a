#include "trainer/weights_file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>

#include "trainer/atomic_file.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little, "hash and file are little-endian");

class Xxh3 {
 public:
  Xxh3() : state_(XXH3_createState()) {
    if (!state_) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void add(const void* data, std::size_t size) { XXH3_128bits_update(state_.get(), data, size); }
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

std::string Xxh3::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool sizes_agree(const NamedArray& array) {
  std::size_t num_bytes = size_of(array.dtype);
  for (const auto dim : array.shape) num_bytes *= static_cast<std::size_t>(dim);
  return num_bytes == array.data.size();
}

std::string json_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      quoted += c;
    } else {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      quoted += escape.data();
    }
  }
  return quoted + '"';
}

std::string json_shape(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const auto dim : shape) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return "[" + text + "]";
}

std::string safetensors_header(std::span<const NamedArray> arrays) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::size_t begin = 0;
  for (const auto& array : arrays) {
    const std::size_t end = begin + array.data.size();
    header += "," + json_string(array.name) + R"(:{"dtype":")" +
              (array.dtype == DType::i64 ? "I64" : "F32") + R"(","shape":)" +
              json_shape(array.shape) + R"(,"data_offsets":[)" + std::to_string(begin) + "," +
              std::to_string(end) + "]}";
    begin = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
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

void write_safetensors(const std::filesystem::path& path, std::span<const NamedArray> given) {
  std::vector<NamedArray> arrays(given.begin(), given.end());
  std::ranges::stable_sort(arrays, std::ranges::greater(),
                           [](const NamedArray& array) { return size_of(array.dtype); });
  const std::string header = safetensors_header(arrays);
  const std::uint64_t header_bytes = header.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&header_bytes, 1)));
  file.write(header);
  for (const auto& array : arrays) {
    assert(sizes_agree(array));
    file.write(array.data);
  }
  file.commit();
}

}  // namespace spillway
