#pragma once

#include <functional>

#include "core/device/device.h"

namespace spillway {

/// Does `work` where the device's ops are done, and waits for it. Throws what it throws, and where
/// the device failed.
void run_on(Device& device, const std::function<void()>& work);

}  // namespace spillway
