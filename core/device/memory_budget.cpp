#include "core/device/memory_budget.h"

#include <cassert>
#include <utility>

#include "spillway/error.h"

namespace spillway {

void MemoryBudget::take(Bytes bytes) {
  Bytes used = used_;
  do {
    const Bytes limit = limit_, left = limit > used ? limit - used : 0;
    if (bytes > left) throw OutOfMemory(Tier::device, bytes, left, owner_);
  } while (!used_.compare_exchange_weak(used, used + bytes));
}

void MemoryBudget::give_back(Bytes bytes) noexcept {
  [[maybe_unused]] const Bytes before = used_.fetch_sub(bytes);
  assert(before >= bytes);
}

BudgetShare::BudgetShare(std::shared_ptr<MemoryBudget> budget, Bytes bytes)
    : budget_(std::move(budget)), bytes_(bytes) {
  budget_->take(bytes_);
}

BudgetShare::~BudgetShare() {
  if (budget_) budget_->give_back(bytes_);
}

BudgetShare::BudgetShare(BudgetShare&& other) noexcept
    : budget_(std::move(other.budget_)), bytes_(other.bytes_) {}

}  // namespace spillway
