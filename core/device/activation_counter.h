#pragma once

#include <atomic>
#include <string>

#include "core/device/device.h"

namespace spillway {

/// The meter of a device whose activations the system allocates. Thread-safe: a tensor may be freed
/// on another thread than the one that made it.
class ActivationCounter : public ActivationMeter {
 public:
  explicit ActivationCounter(std::string owner) : owner_(std::move(owner)) {}

  void begin_op(Bytes reserved) override;
  void charge(Bytes bytes) override;
  void discharge(Bytes bytes) noexcept override;
  Bytes in_use() const override { return in_use_; }
  Bytes peak_since_begin() const override { return peak_; }

 protected:
  const std::string& owner() const { return owner_; }

 private:
  const std::string owner_;
  std::atomic<Bytes> in_use_ = 0, reserved_ = 0, peak_ = 0;
};

}  // namespace spillway
