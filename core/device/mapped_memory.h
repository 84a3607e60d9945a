#pragma once

#include <string>

#include "core/device/device.h"
#include "core/device/memory_budget.h"
#include "spillway/error.h"

namespace spillway {

/// The system refused memory that the budgets allow.
class SystemOutOfMemory final : public OutOfMemory {
 public:
  /// `free`: free memory of the machine.
  SystemOutOfMemory(Tier tier, Bytes requested, Bytes free, const std::string& who);
  const char* what() const noexcept override { return message_.what(); }

 private:
  const Error message_;
};

/// Zeroed pages from the system, huge where possible. A page takes memory when it is first touched.
class MappedMemory final : public DeviceMemory {
 public:
  /// Throws SystemOutOfMemory of `tier`. Host memory beyond what the machine can provide is refused
  /// here; a device arena may be larger because not all of it is touched.
  MappedMemory(Bytes bytes, Tier tier, const std::string& owner, BudgetShare share = {});
  ~MappedMemory() override;
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::byte* data() const override { return data_; }
  Bytes size() const override { return size_; }

 private:
  const BudgetShare share_;
  const Bytes size_;
  std::byte* const data_;
};

}  // namespace spillway
