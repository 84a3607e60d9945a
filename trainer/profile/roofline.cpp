#include "trainer/profile/roofline.h"

#include <algorithm>
#include <cmath>

namespace spillway {

double Roofline::tokens() const { return std::max(copy_tokens, update_tokens); }

std::int64_t Roofline::virtual_nodes(std::int64_t tokens_each) const {
  return std::max<std::int64_t>(
      std::llround(std::ceil(tokens() / static_cast<double>(tokens_each))), 1);
}

Roofline roofline(const MachineDevice& device, DType dtype, double update_bytes_per_s) {
  constexpr double kOperations = 8;
  const double flops_per_s = dtype == DType::bf16 ? device.bf16_flops_per_s : device.flops_per_s;
  if (flops_per_s == 0) return {};
  const double down = 2.0 * static_cast<double>(size_of(dtype)), up = sizeof(float);
  const double copy_s = std::max({down / device.h2d_bytes_per_s, up / device.d2h_bytes_per_s,
                                  (down + up) / device.duplex_bytes_per_s});
  const double token_s = kOperations / flops_per_s;
  return {.copy_tokens = copy_s / token_s,
          .update_tokens = sizeof(float) / update_bytes_per_s / token_s};
}

}  // namespace spillway
