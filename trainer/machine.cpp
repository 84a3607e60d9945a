#include "trainer/machine.h"

#include <ATen/Version.h>
#include <sched.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "core/device.h"
#include "core/kernels.h"

namespace spillway {
namespace {

constexpr Bytes kBlock = 64_MiB;

int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

/// A line such as "MemTotal:  1024 kB".
Bytes meminfo(const std::string& key) {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return std::stoull(line.substr(key.size())) * 1024;
  }
  return 0;
}

/// A number in a file of the control group; "max" or no file is no limit.
Bytes control_group(const char* name) {
  std::ifstream in(std::string("/sys/fs/cgroup/") + name);
  Bytes value = 0;
  return in >> value ? value : std::numeric_limits<Bytes>::max();
}

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  }
  return "unknown";
}

const char* name_of(kernels::Isa isa) {
  switch (isa) {
    case kernels::Isa::baseline:
      return "baseline";
    case kernels::Isa::avx2:
      return "AVX2";
    case kernels::Isa::avx512:
      return "AVX512";
  }
  return "?";
}

/// As the copies of a run: one thread each way.
MachineDevice measure_cpu_device() {
  const auto device = make_cpu_device("cpu", 2 * kBlock);
  const auto on_device = device->allocate(2 * kBlock), on_host = device->allocate_host(2 * kBlock);
  std::fill_n(on_host->data(), 2 * kBlock, std::byte{1});
  std::fill_n(on_device->data(), 2 * kBlock, std::byte{2});
  const auto copy = [&](bool down, bool up) {
    const double seconds = median_seconds([&] {
      Queue &h2d = device->host_to_device(), &d2h = device->device_to_host();
      if (down) h2d.copy_async(on_device->data(), on_host->data(), kBlock);
      if (up) d2h.copy_async(on_host->data() + kBlock, on_device->data() + kBlock, kBlock);
      h2d.record().wait();
      d2h.record().wait();
    });
    return static_cast<double>(kBlock) * (down && up ? 2 : 1) / seconds;
  };
  return {.kind = "cpu",
          .h2d_bytes_per_s = copy(true, false),
          .d2h_bytes_per_s = copy(false, true),
          .duplex_bytes_per_s = copy(true, true)};
}

}  // namespace

Machine inspect_machine() {
  Machine machine{.spillway_version = SPILLWAY_VERSION,
                  .torch_version = TORCH_VERSION,
                  .compiler = "g++ " __VERSION__,
                  .processor = processor(),
                  .kernels = std::string(name_of(kernels::active_isa())) + ", LibTorch's " +
                             at::get_cpu_capability(),
                  .cores = usable_cores()};
  const Bytes limit = control_group("memory.max"), used = control_group("memory.current");
  machine.memory_bytes = std::min(meminfo("MemTotal:"), limit);
  machine.available_bytes = meminfo("MemAvailable:");
  if (limit != std::numeric_limits<Bytes>::max()) {
    machine.available_bytes = std::min(machine.available_bytes, limit - std::min(used, limit));
  }
  machine.devices.push_back(measure_cpu_device());
  machine.rates = measure_host_rates();
  return machine;
}

}  // namespace spillway
