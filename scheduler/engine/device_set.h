#pragma once

#include <bit>
#include <boost/container/small_vector.hpp>
#include <cstdint>

#include "spillway/ids.h"

namespace spillway {

/// A set of devices, iterated in order; it may change during the iteration.
class DeviceSet {
 public:
  explicit DeviceSet(std::size_t num_devices) : words_((num_devices + 63) / 64) {}

  /// Grows the set to `num_devices` devices.
  void grow(std::size_t num_devices) { words_.resize((num_devices + 63) / 64); }
  bool contains(DeviceId id) const { return (words_[id.index() / 64] >> id.index() % 64 & 1) != 0; }
  void set(DeviceId id, bool is_member) {
    const auto bit = std::uint64_t{1} << id.index() % 64;
    std::uint64_t& word = words_[id.index() / 64];
    word = is_member ? word | bit : word & ~bit;
  }
  /// The first member from position `from` on; the invalid id if there is none.
  DeviceId next(std::size_t from) const {
    std::uint64_t skip = from % 64;
    for (std::size_t w = from / 64; w < words_.size(); ++w, skip = 0) {
      const std::uint64_t rest = words_[w] >> skip << skip;
      if (rest != 0) return DeviceId(w * 64 + static_cast<std::size_t>(std::countr_zero(rest)));
    }
    return DeviceId();
  }
  bool empty() const { return !next(0).valid(); }

 private:
  boost::container::small_vector<std::uint64_t, 2> words_;
};

}  // namespace spillway
