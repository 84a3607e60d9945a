#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace spillway {

/// XXH3-128 (seed 0) of all added bytes.
/// Source: https://github.com/Cyan4973/xxHash
class Xxh3 {
 public:
  Xxh3();
  void add(const void* data, std::size_t size);
  /// 32 hex digits, high half first.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// The hash of these bytes.
std::string xxh3(std::span<const std::byte> bytes);

}  // namespace spillway
