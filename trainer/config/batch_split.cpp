#include "trainer/config/batch_split.h"

#include <algorithm>
#include <cstdint>

namespace spillway {
namespace {

int largest_divisor_up_to_8(std::int64_t number) {
  auto divisor = std::clamp<std::int64_t>(number, 1, 8);
  while (number % divisor != 0) --divisor;
  return static_cast<int>(divisor);
}

}  // namespace

int virtual_nodes_of(const TrainConfig& train) {
  return train.virtual_nodes > 0 ? train.virtual_nodes : largest_divisor_up_to_8(train.batch_size);
}

int reduction_groups_of(const TrainConfig& train) {
  return train.reduction_groups > 0 ? train.reduction_groups
                                    : largest_divisor_up_to_8(virtual_nodes_of(train));
}

}  // namespace spillway
