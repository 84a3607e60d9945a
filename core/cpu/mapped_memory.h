#pragma once

#include <string>

#include "core/cpu/memory_budget.h"
#include "core/device.h"
#include "core/error.h"

namespace spillway {

/// Zeroed pages straight from the system: a page costs memory once it is touched, and all go back
/// at the end. Huge pages are advised.
class MappedMemory final : public DeviceMemory {
 public:
  /// Throws OutOfMemory of `tier`. Host memory that the machine can never have is refused here;
  /// a device arena may be larger than what will be touched.
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
