#include "trainer/profile/copy_rates.h"

#include <algorithm>

#include "trainer/profile/host_rates.h"

namespace spillway {

/// Two blocks fit.
static Bytes block_on(const Device& device) {
  const Bytes half = device.split().planned(device.budget()) / 2 / kPage * kPage;
  return std::clamp(half, kPage, kBeyondCaches);
}

CopyRates measure_copies(Device& device) {
  const Bytes block = block_on(device);
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

double measure_copies(Device& from, Device& to) {
  const Bytes block = std::min(block_on(from), block_on(to));
  const auto sent = from.allocate(block), arrived = to.allocate(block);
  const auto zeros = from.allocate_host(block);
  from.host_to_device().copy_async(sent->data(), zeros->data(), block);
  from.host_to_device().record().wait();
  const auto copy = [&] {
    to.from_devices().copy_async(arrived->data(), sent->data(), block);
    to.from_devices().record().wait();
  };
  copy();
  return static_cast<double>(block) / expected_seconds(copy);
}

}  // namespace spillway
