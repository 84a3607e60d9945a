#pragma once

#include <atomic>
#include <memory>

#include "spilling/tiers/store.h"
#include "spillway/error.h"

namespace spillway::testing {

/// A store that refuses one allocation for lack of room: number `failing`, from 0.
class FailingStore final : public Store {
 public:
  FailingStore(Store& store, int failing) : store_(store), failing_(failing) {}
  std::unique_ptr<DeviceMemory> allocate(Bytes bytes) override {
    if (calls_++ == failing_) throw OutOfMemory(Tier::disk, bytes, 17, "a store made to fail");
    return store_.allocate(bytes);
  }

 private:
  Store& store_;
  const int failing_;
  std::atomic<int> calls_ = 0;
};

}  // namespace spillway::testing
