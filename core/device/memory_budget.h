#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "spillway/units.h"

namespace spillway {

/// Device bytes that are handed out, never above `limit`, which may shrink. Thread-safe.
class MemoryBudget {
 public:
  MemoryBudget(std::string owner, Bytes limit) : owner_(std::move(owner)), limit_(limit) {}

  const std::string& owner() const { return owner_; }
  Bytes limit() const { return limit_; }
  /// At most the limit so far. What is handed out beyond it stays until it is given back.
  void shrink(Bytes limit) { limit_ = limit; }
  /// Throws OutOfMemory of the device tier, with nothing taken.
  void take(Bytes bytes);
  void give_back(Bytes bytes) noexcept;

 private:
  const std::string owner_;
  std::atomic<Bytes> limit_;
  std::atomic<Bytes> used_ = 0;
};

/// Bytes taken from a budget until the end of this object.
class BudgetShare {
 public:
  BudgetShare() = default;
  BudgetShare(std::shared_ptr<MemoryBudget> budget, Bytes bytes);
  ~BudgetShare();
  BudgetShare(BudgetShare&& other) noexcept;
  BudgetShare& operator=(BudgetShare&&) = delete;

 private:
  std::shared_ptr<MemoryBudget> budget_;  // shared: a device and its memory end in any order
  Bytes bytes_ = 0;
};

}  // namespace spillway
