#pragma once

namespace spillway::experiments {

/// The ablation on two CPU devices with an imitated link; prints a list and a table.
void print_real_devices(bool brief);

}  // namespace spillway::experiments
