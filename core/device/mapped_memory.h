#pragma once

#include <string>

#include "core/device/device.h"
#include "core/device/memory_budget.h"
#include "spillway/error.h"

namespace spillway {

/// The system gave no memory, whatever budgets allow.
class SystemOutOfMemory final : public OutOfMemory {
 public:
  /// `free`: what the machine has.
  SystemOutOfMemory(Tier tier, Bytes requested, Bytes free, const std::string& who);
  const char* what() const noexcept override { return message_.what(); }

 private:
  const Error message_;
};

/// Zeroed pages straight from the system: a page costs memory once it is touched, and all go back
/// at the end. Huge pages are advised.
class MappedMemory final : public DeviceMemory {
 public:
  /// Throws SystemOutOfMemory of `tier`. Host memory that the machine can never have is refused
  /// here; a device arena may be larger than what will be touched.
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
