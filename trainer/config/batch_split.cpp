#include "trainer/config/batch_split.h"

#include <algorithm>

namespace spillway {

int default_groups(int virtual_nodes) {
  int groups = std::min(virtual_nodes, 8);
  while (virtual_nodes % groups != 0) --groups;
  return groups;
}

}  // namespace spillway
