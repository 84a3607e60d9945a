#pragma once

#include <functional>

#include "core/device/device.h"

namespace spillway {

/// Runs `work` on the thread that runs the device's ops, and waits. Throws what `work` throws, and
/// DeviceLost if the device failed.
void run_on(Device& device, const std::function<void()>& work);

}  // namespace spillway
