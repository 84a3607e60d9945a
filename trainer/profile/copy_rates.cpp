#include "trainer/profile/copy_rates.h"

#include <algorithm>

#include "trainer/profile/host_rates.h"

namespace spillway {

CopyRates measure_copies(Device& device) {
  const Bytes half = device.split().planned(device.budget()) / 2 / kPage * kPage;
  const Bytes block = std::clamp(half, kPage, kBeyondCaches);
  const auto on_device = device.allocate(2 * block), on_host = device.allocate_host(2 * block);
  Queue &h2d = device.host_to_device(), &d2h = device.device_to_host();
  std::fill_n(on_host->data(), 2 * block, std::byte{1});
  h2d.copy_async(on_device->data(), on_host->data(), 2 * block);
  h2d.record().wait();
  const auto rate = [&](bool down, bool up) {
    const double seconds = expected_seconds([&] {
      if (down) h2d.copy_async(on_device->data(), on_host->data(), block);
      if (up) d2h.copy_async(on_host->data() + block, on_device->data() + block, block);
      h2d.record().wait();
      d2h.record().wait();
    });
    return static_cast<double>(block) * (down && up ? 2 : 1) / seconds;
  };
  return {.h2d = rate(true, false), .d2h = rate(false, true), .duplex = rate(true, true)};
}

}  // namespace spillway
