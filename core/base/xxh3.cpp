#include "core/base/xxh3.h"

#include <fmt/format.h>
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
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string xxh3(std::span<const std::byte> bytes) {
  Xxh3 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.hex();
}

}  // namespace spillway
