#pragma once

#include <string>
#include <vector>

namespace spillway {

/// Environment variables that are known to select kernels and are set, as "NAME=value". A hint why
/// bits may differ, never the criterion: trainer/profile/numerics.h measures that.
std::vector<std::string> kernel_variables();

}  // namespace spillway
