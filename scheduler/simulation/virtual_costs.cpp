#include "scheduler/simulation/virtual_costs.h"

#include <algorithm>

namespace spillway {

double VirtualCosts::slowdown_of(std::size_t device) const {
  return device < slowdown.size() ? slowdown[device] : 1;
}

double VirtualCosts::op_start_of(std::size_t device) const {
  return device < op_start_s.size() ? op_start_s[device] : 0;
}

double VirtualCosts::copy_rate_of(std::size_t device) const {
  const double link = device < link_bytes_per_s.size() ? link_bytes_per_s[device] : 0;
  return link > 0 ? std::min(link, copy_bytes_per_s) : copy_bytes_per_s;
}

double Contention::at(double busy) const {
  if (threads == 0) return 1;
  if (busy >= threads) return factor * busy / threads;
  return 1 + (factor - 1) * (busy - 1) / (threads - 1);
}

}  // namespace spillway
