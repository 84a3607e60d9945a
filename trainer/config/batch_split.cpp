#include "trainer/config/batch_split.h"

#include "core/base/divisor.h"

namespace spillway {
namespace {

int default_divisor(std::int64_t number) { return static_cast<int>(largest_divisor(number, 8)); }

}  // namespace

int virtual_nodes_of(const TrainConfig& train) {
  return train.virtual_nodes > 0 ? train.virtual_nodes : default_divisor(train.batch_size);
}

int reduction_groups_of(const TrainConfig& train) {
  return train.reduction_groups > 0 ? train.reduction_groups
                                    : default_divisor(virtual_nodes_of(train));
}

}  // namespace spillway
