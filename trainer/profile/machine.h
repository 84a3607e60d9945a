#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "spillway/units.h"
#include "trainer/profile/host_rates.h"
#include "trainer/profile/numerics.h"

namespace spillway {

/// A kind of device of this machine, and its rates.
struct MachineDevice {
  std::string kind;  ///< cpu, cuda:0, cuda:1, ...
  double h2d_bytes_per_s = 0, d2h_bytes_per_s = 0;
  double duplex_bytes_per_s = 0;                 ///< both ways at once, summed
  double flops_per_s = 0, bf16_flops_per_s = 0;  ///< of matrix products; 0: not measured
};

/// How fast two GPUs copy to each other.
struct MachineLink {
  int one = 0, other = 0;  ///< their numbers
  double bytes_per_s = 0;  ///< of the slower direction
};

/// The software, hardware and measured rates of this machine.
struct Machine {
  std::string spillway_version, torch_version, compiler;
  std::string processor, kernels;  ///< kernels: their instruction set, ours and LibTorch's
  int cores = 0;                   ///< that this process may use
  Bytes memory_bytes = 0;          ///< of the machine, or the limit of its control group
  Bytes available_bytes = 0;       ///< not in use now
  std::vector<MachineDevice> devices;
  std::vector<MachineLink> links;
  GpuList gpus;
  Numerics numerics;                          ///< of this process
  std::vector<std::string> kernel_variables;  ///< "MKL_CBWR=AVX2"
  HostRates rates;                            ///< of one core
  double update_bytes_per_s = 0;              ///< AdamW by all of them: bytes of weights
};

/// The processor of this machine.
std::string processor_name();
/// From text as in /proc/cpuinfo: the model's name or, on ARM, its numbers.
std::string processor_name(std::istream& cpuinfo);

/// Inspects the machine and measures its rates in about two seconds.
Machine inspect_machine();

}  // namespace spillway
