#include "trainer/storage/xxh3.h"

#include <xxhash.h>

#include <new>

namespace spillway {

Xxh3::Xxh3() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Xxh3::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void Xxh3::add(const void* data, std::size_t size) {
  XXH3_128bits_update(state_.get(), data, size);
}

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

std::string xxh3(std::span<const std::byte> bytes) {
  Xxh3 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.hex();
}

}  // namespace spillway
