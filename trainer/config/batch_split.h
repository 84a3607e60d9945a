#pragma once

namespace spillway {

/// The default number of reduction groups: the largest divisor of `virtual_nodes` up to 8.
int default_groups(int virtual_nodes);

}  // namespace spillway
