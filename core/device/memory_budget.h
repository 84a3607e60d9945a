#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "spillway/units.h"

namespace spillway {

/// Counts the device bytes in use against a limit, which may shrink. Thread-safe.
class MemoryBudget {
 public:
  MemoryBudget(std::string owner, Bytes limit) : owner_(std::move(owner)), limit_(limit) {}

  const std::string& owner() const { return owner_; }
  Bytes limit() const { return limit_; }
  /// `limit` is at most the present one. Bytes beyond it stay in use until they are given back.
  void shrink(Bytes limit) { limit_ = limit; }
  /// Throws OutOfMemory of the device tier, and then takes nothing.
  void take(Bytes bytes);
  void give_back(Bytes bytes) noexcept;

 private:
  const std::string owner_;
  std::atomic<Bytes> limit_;
  std::atomic<Bytes> used_ = 0;
};

/// Bytes of a budget, given back by the destructor.
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
