#include "apps/commands/doctor_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <ranges>

#include "runs/folder/cache_file.h"
#include "runs/log/run_json.h"
#include "runs/text/format.h"
#include "runs/text/table.h"
#include "spillway/units.h"
#include "trainer/profile/machine.h"
#include "trainer/profile/roofline.h"

namespace spillway {
namespace {

constexpr std::int64_t kTokens = 2048;  // per virtual node, in the advice

Json to_json(const Roofline& roofline) {
  return {{"copies_hidden_from_tokens", roofline.copy_tokens},
          {"updates_hidden_from_tokens", roofline.update_tokens}};
}

Json to_json(const Numerics& numerics, const std::vector<std::string>& kernel_variables) {
  Json groups = Json::object();
  for (const Numerics::Group& group : numerics.groups) groups[group.name] = group.xxh3;
  return {{"xxh3", numerics.xxh3()},
          {"groups", std::move(groups)},
          {"seconds", numerics.seconds},
          {"variables", kernel_variables}};
}

Json to_json(const Machine& machine) {
  Json devices = Json::array();
  for (const auto& device : machine.devices) {
    devices.push_back(
        {{"kind", device.kind},
         {"h2d_bytes_per_s", device.h2d_bytes_per_s},
         {"d2h_bytes_per_s", device.d2h_bytes_per_s},
         {"duplex_bytes_per_s", device.duplex_bytes_per_s},
         {"flops_per_s", device.flops_per_s},
         {"bf16_flops_per_s", device.bf16_flops_per_s},
         {"fp32", to_json(roofline(device, DType::f32, machine.update_bytes_per_s))},
         {"bf16", to_json(roofline(device, DType::bf16, machine.update_bytes_per_s))}});
  }
  Json links = Json::array();
  for (const auto& [one, other, bytes_per_s] : machine.links) {
    links.push_back({{"between", {one, other}}, {"bytes_per_s", bytes_per_s}});
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
          {"numerics", to_json(machine.numerics, machine.kernel_variables)},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"available_bytes", machine.available_bytes},
          {"devices", std::move(devices)},
          {"links", std::move(links)},
          {"gpus", std::move(gpus)},
          {"why_no_gpu", machine.gpus.why_none},
          {"copy_bytes_per_s", machine.rates.copy_bytes_per_s},
          {"update_bytes_per_s", machine.rates.update_bytes_per_s},
          {"reduce_bytes_per_s", machine.rates.reduce_bytes_per_s},
          {"matmul_flops_per_s", machine.rates.matmul_flops_per_s},
          {"all_cores_update_bytes_per_s", machine.update_bytes_per_s},
          {"pilot_cache", pilot_cache_file().string()}};
}

std::string rate(double bytes_per_s) {
  return format_rate(static_cast<Bytes>(std::llround(bytes_per_s)));
}

void print_gpus(std::ostream& out, const GpuList& list) {
  for (std::size_t i = 0; i < list.gpus.size(); ++i) {
    const GpuInfo& gpu = list.gpus[i];
    out << fmt::format("GPU {}: {}, {}, {} free{}{}\n", i, gpu.name, format_bytes(gpu.memory),
                       format_bytes(gpu.free),
                       gpu.problem.empty() ? "" : "; not measured: ", gpu.problem);
  }
  if (list.gpus.empty()) out << "No GPU: " << list.why_none << "\n";
}

/// As keys of a configuration whose devices are the GPUs that were measured.
void print_links(std::ostream& out, const std::vector<MachineLink>& links) {
  if (links.empty()) return;
  std::map<int, int> devices;  // by number of the GPU
  for (const MachineLink& link : links) devices[link.one] = devices[link.other] = 0;
  int next = 0;
  for (auto& [gpu, device] : devices) device = next++;
  out << fmt::format(
      "\nBetween GPUs, for a configuration whose devices are GPU {} in this order:\nlinks:\n",
      fmt::join(devices | std::views::keys, ", "));
  for (const auto& [one, other, bytes_per_s] : links) {
    out << fmt::format("  - {{between: [{}, {}], rate: {:.0f}MB/s}}\n", devices[one],
                       devices[other], std::max(1.0, bytes_per_s / 1e6));
  }
}

std::string flops(double flops_per_s) {
  return flops_per_s > 0 ? fmt::format("{:.1f} GFLOP/s", flops_per_s / 1e9) : "not measured";
}

/// How many tokens per step a model that is larger than the device needs.
void print_roofline(std::ostream& out, const MachineDevice& device, DType dtype,
                    double update_bytes_per_s) {
  const Roofline line = roofline(device, dtype, update_bytes_per_s);
  if (line.tokens() == 0) return;
  const std::int64_t nodes = line.virtual_nodes(kTokens);
  out << fmt::format(
      "{}, {}: a spilled model hides its copies with {:.0f} tokens per step or more, its updates "
      "with {:.0f}: use at least {} virtual {} of {} tokens\n",
      device.kind, dtype == DType::bf16 ? "bf16" : "fp32", line.copy_tokens, line.update_tokens,
      nodes, nodes == 1 ? "node" : "nodes", kTokens);
}

void print(std::ostream& out, const Machine& machine) {
  out << fmt::format(
      "Spillway {}, LibTorch {}, {}\n{}: {} usable cores, kernels {}\n"
      "Numerics {}, measured in {:.0f} ms\n",
      machine.spillway_version, machine.torch_version, machine.compiler, machine.processor,
      machine.cores, machine.kernels, machine.numerics.xxh3(), machine.numerics.seconds * 1e3);
  for (const std::string& variable : machine.kernel_variables)
    out << fmt::format("  {} is set; it may select other kernels\n", variable);
  out << fmt::format("Memory: {}, {} free\n", format_bytes(machine.memory_bytes),
                     format_bytes(machine.available_bytes));
  print_gpus(out, machine.gpus);
  out << "\n";
  Table devices({"device", "to device", "to host", "both at once", "fp32", "bf16"});
  for (const auto& device : machine.devices) {
    devices.add({device.kind, rate(device.h2d_bytes_per_s), rate(device.d2h_bytes_per_s),
                 rate(device.duplex_bytes_per_s), flops(device.flops_per_s),
                 flops(device.bf16_flops_per_s)});
  }
  devices.print(out);
  print_links(out, machine.links);
  out << "\n";
  for (const auto& device : machine.devices) {
    print_roofline(out, device, DType::f32, machine.update_bytes_per_s);
    print_roofline(out, device, DType::bf16, machine.update_bytes_per_s);
  }
  out << fmt::format(
      "\nOne core: matrix products {:.1f} GFLOP/s; AdamW {} of weights; norms {} of gradients; "
      "copies {}\n",
      machine.rates.matmul_flops_per_s / 1e9, rate(machine.rates.update_bytes_per_s),
      rate(machine.rates.reduce_bytes_per_s), rate(machine.rates.copy_bytes_per_s));
  if (const auto cache = pilot_cache_file(); !cache.empty())
    out << fmt::format("Measured costs are cached in {}\n", cache.string());
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
