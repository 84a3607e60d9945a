#include "trainer/profile/machine.h"

#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <sched.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device/device.h"
#include "core/device/kernels.h"
#include "core/os/host_memory.h"
#include "spillway/choices.h"
#include "spillway/error.h"
#include "trainer/compute/run_on.h"
#include "trainer/config/kernel_variables.h"
#include "trainer/profile/copy_rates.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/kernel_flags.h"
#include "trainer/torch/torch_gpu.h"
#include "trainer/torch/torch_threads.h"

namespace spillway {

template <>
inline constexpr std::array kNames<kernels::Isa>{"baseline", "AVX2", "AVX512"};

namespace {

int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

std::string compiler_name() {
#ifdef __clang__
  return __VERSION__;  // contains "Clang"
#else
  return "g++ " __VERSION__;
#endif
}

constexpr int kProducts = 8;  // so that dispatch takes no time

/// Seconds of kProducts products of square matrices.
double seconds_of_products(Device& device, at::ScalarType type, std::int64_t size) {
  const auto options = at::TensorOptions(type).device(torch_device(device.gpu()));
  at::Tensor a, b, product;
  run_on(device, [&] {
    if (device.gpu() >= 0) bind_torch_thread(device.gpu(), device.compute().stream());
    initialize_torch_thread();
    a = at::ones({size, size}, options);
    b = at::ones({size, size}, options);
    product = at::empty({size, size}, options);  // so that allocation is not timed
  });
  const double seconds = expected_seconds([&] {
    run_on(device, [&] {
      for (int i = 0; i < kProducts; ++i) at::mm_out(product, a, b);
    });
  });
  run_on(device, [&] {
    for (at::Tensor* each : {&a, &b, &product}) each->reset();
  });
  return seconds;
}

/// Floating-point operations per second in products that keep the device busy; on a CPU device, of
/// one core.
double measure_products(Device& device, at::ScalarType type) {
  constexpr double kLongEnough = 0.01;
  constexpr std::int64_t kSmallest = 512, kLargest = 8192;
  for (std::int64_t size = kSmallest;; size *= 2) {
    const double seconds = seconds_of_products(device, type, size);
    if (seconds < kLongEnough && size < kLargest) continue;
    return kProducts * 2 * std::pow(static_cast<double>(size), 3) / seconds;
  }
}

void measure_products(MachineDevice& rates, Device& device) {
  rates.flops_per_s = measure_products(device, at::kFloat);
  rates.bf16_flops_per_s = measure_products(device, at::kBFloat16);
}

MachineDevice measure(std::string kind, Device& device) {
  const CopyRates copies = measure_copies(device);
  return {.kind = std::move(kind),
          .h2d_bytes_per_s = copies.h2d,
          .d2h_bytes_per_s = copies.d2h,
          .duplex_bytes_per_s = copies.duplex};
}

void measure_links(Machine& machine, const std::vector<std::unique_ptr<Device>>& gpus) {
  for (std::size_t one = 0; one < gpus.size(); ++one) {
    for (std::size_t other = one + 1; other < gpus.size(); ++other) {
      const double there = measure_copies(*gpus[one], *gpus[other]),
                   back = measure_copies(*gpus[other], *gpus[one]);
      machine.links.push_back({gpus[one]->gpu(), gpus[other]->gpu(), std::min(there, back)});
    }
  }
}

/// Measures the GPUs that are usable now.

void measure_gpus(Machine& machine) {
  machine.gpus = list_gpus();
  std::vector<std::unique_ptr<Device>> open;
  for (std::size_t i = 0; i < machine.gpus.gpus.size(); ++i) {
    const std::string kind = fmt::format("cuda:{}", i);
    try {
      auto device = make_cuda_device(kind, static_cast<int>(i), 2 * kBeyondCaches);
      machine.devices.push_back(measure(kind, *device));
      load_torch_gpu();
      const ReproducibleGpuKernels kernels;
      measure_products(machine.devices.back(), *device);
      free_torch_workspaces(device->compute().stream());
      open.push_back(std::move(device));
    } catch (const ConfigError& error) {
      machine.gpus.gpus[i].problem = error.problem;
    } catch (const std::exception& error) {
      machine.gpus.gpus[i].problem = error.what();
    }
  }
  measure_links(machine, open);
}

}  // namespace

std::string processor_name(std::istream& cpuinfo) {
  std::map<std::string, std::string> fields;  // of the first core
  for (std::string line; std::getline(cpuinfo, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto end_of_key = line.find_last_not_of(" \t", colon - 1);
    const auto value = line.find_first_not_of(' ', colon + 1);
    if (value == std::string::npos) continue;
    fields.emplace(line.substr(0, end_of_key + 1), line.substr(value));
  }
  if (const auto name = fields.find("model name"); name != fields.end()) return name->second;
  std::string text;  // on ARM the kernel gives numbers only
  for (const char* key :
       {"CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"}) {
    if (const auto field = fields.find(key); field != fields.end()) {
      text += (text.empty() ? "" : ", ") + field->first + " " + field->second;
    }
  }
  return text.empty() ? "unknown" : text;
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  return processor_name(in);
}

Machine inspect_machine() {
  initialize_torch();
  Machine machine{.spillway_version = SPILLWAY_VERSION,
                  .torch_version = TORCH_VERSION,
                  .compiler = compiler_name(),
                  .processor = processor_name(),
                  .kernels = fmt::format("{}, LibTorch's {}", to_string(kernels::active_isa()),
                                         at::get_cpu_capability()),
                  .cores = usable_cores(),
                  .numerics = numerics(),
                  .kernel_variables = kernel_variables()};
  const HostMemory memory = host_memory();
  machine.memory_bytes = memory.total;
  machine.available_bytes = memory.available;
  const auto cpu = make_cpu_device("cpu", 2 * kBeyondCaches);
  machine.devices.push_back(measure("cpu", *cpu));
  measure_products(machine.devices.back(), *cpu);
  measure_gpus(machine);
  machine.rates = measure_host_rates();
  machine.update_bytes_per_s = measure_updates();
  return machine;
}

}  // namespace spillway
