#include "core/device/activation_counter.h"

#include <cassert>

#include "spillway/error.h"

namespace spillway {

void ActivationCounter::begin_op(Bytes reserved) {
  reserved_ = reserved;
  peak_ = in_use_.load();
}

void ActivationCounter::charge(Bytes bytes) {
  const Bytes reserved = reserved_;
  Bytes used = in_use_;
  do {
    const Bytes available = reserved > used ? reserved - used : 0;
    if (bytes > available) throw OutOfMemory(Tier::device, bytes, available, owner_);
  } while (!in_use_.compare_exchange_weak(used, used + bytes));
  Bytes peak = peak_;
  while (peak < used + bytes && !peak_.compare_exchange_weak(peak, used + bytes)) {
  }
}

void ActivationCounter::discharge(Bytes bytes) noexcept {
  [[maybe_unused]] const Bytes before = in_use_.fetch_sub(bytes);
  assert(before >= bytes);
}

}  // namespace spillway
