#include "apps/doctor_command.h"

#include <cmath>
#include <ostream>

#include "apps/cache_file.h"
#include "apps/format.h"
#include "apps/run_json.h"
#include "apps/table.h"
#include "core/units.h"
#include "trainer/machine.h"

namespace spillway {
namespace {

Json to_json(const Machine& machine) {
  Json devices = Json::array();
  for (const auto& device : machine.devices) {
    devices.push_back({{"kind", device.kind},
                       {"h2d_bytes_per_s", device.h2d_bytes_per_s},
                       {"d2h_bytes_per_s", device.d2h_bytes_per_s},
                       {"duplex_bytes_per_s", device.duplex_bytes_per_s}});
  }
  Json gpus = Json::array();
  for (const auto& gpu : machine.gpus.gpus) {
    gpus.push_back({{"name", gpu.name},
                    {"memory_bytes", gpu.memory},
                    {"available_bytes", gpu.free},
                    {"problem", gpu.problem}});
  }
  return {{"spillway_version", machine.spillway_version},
          {"torch_version", machine.torch_version},
          {"compiler", machine.compiler},
          {"processor", machine.processor},
          {"kernels", machine.kernels},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"available_bytes", machine.available_bytes},
          {"devices", std::move(devices)},
          {"gpus", std::move(gpus)},
          {"why_no_gpu", machine.gpus.why_none},
          {"copy_bytes_per_s", machine.rates.copy_bytes_per_s},
          {"update_bytes_per_s", machine.rates.update_bytes_per_s},
          {"reduce_bytes_per_s", machine.rates.reduce_bytes_per_s},
          {"matmul_flops_per_s", machine.rates.matmul_flops_per_s},
          {"pilot_cache", pilot_cache_file().string()}};
}

std::string rate(double bytes_per_s) {
  return format_rate(static_cast<Bytes>(std::llround(bytes_per_s)));
}

void print_gpus(std::ostream& out, const GpuList& list) {
  for (std::size_t i = 0; i < list.gpus.size(); ++i) {
    const GpuInfo& gpu = list.gpus[i];
    out << "GPU " << i << ": " << gpu.name << ", " << format_bytes(gpu.memory) << ", "
        << format_bytes(gpu.free) << " of it free"
        << (gpu.problem.empty() ? "" : "; not measured: " + gpu.problem) << "\n";
  }
  if (list.gpus.empty()) out << "No GPU: " << list.why_none << "\n";
}

void print(std::ostream& out, const Machine& machine) {
  out << "Spillway " << machine.spillway_version << ", LibTorch " << machine.torch_version << ", "
      << machine.compiler << "\n"
      << machine.processor << ": " << machine.cores << " cores to use, kernels " << machine.kernels
      << "\n"
      << "Memory: " << format_bytes(machine.memory_bytes) << ", "
      << format_bytes(machine.available_bytes) << " of it free\n";
  print_gpus(out, machine.gpus);
  out << "\n";
  Table devices({"device", "to it", "from it", "both at once"});
  for (const auto& device : machine.devices) {
    devices.add({device.kind, rate(device.h2d_bytes_per_s), rate(device.d2h_bytes_per_s),
                 rate(device.duplex_bytes_per_s)});
  }
  devices.print(out);
  out << "\nOne core: matrix products " << format_fixed(machine.rates.matmul_flops_per_s / 1e9, 1)
      << " GFLOP/s; AdamW over " << rate(machine.rates.update_bytes_per_s)
      << " of weights; norms over " << rate(machine.rates.reduce_bytes_per_s)
      << " of gradients; copies " << rate(machine.rates.copy_bytes_per_s) << "\n";
  if (const auto cache = pilot_cache_file(); !cache.empty())
    out << "Measured costs are kept in " << cache.string() << "\n";
}

}  // namespace

ExitCode doctor(const DoctorOptions& options, std::ostream& out) {
  const auto machine = inspect_machine();
  if (options.json) {
    out << to_text(to_json(machine));
  } else {
    print(out, machine);
  }
  return kDone;
}

}  // namespace spillway
