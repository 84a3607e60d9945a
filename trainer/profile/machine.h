#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "spillway/units.h"
#include "trainer/profile/host_rates.h"
#include "trainer/profile/numerics.h"

namespace spillway {

/// A kind of device that this machine has, and how fast bytes come and go there.
struct MachineDevice {
  std::string kind;  ///< cpu, cuda:0, cuda:1, ...
  double h2d_bytes_per_s = 0, d2h_bytes_per_s = 0;
  double duplex_bytes_per_s = 0;                 ///< both ways at once, summed
  double flops_per_s = 0, bf16_flops_per_s = 0;  ///< of matrix products; 0: not measured
};

/// What Spillway stands on here.
struct Machine {
  std::string spillway_version, torch_version, compiler;
  std::string processor, kernels;  ///< kernels: their instruction set, ours and LibTorch's
  int cores = 0;                   ///< that this process may use
  Bytes memory_bytes = 0;          ///< of the machine, or what a control group leaves of it
  Bytes available_bytes = 0;       ///< not in use now
  std::vector<MachineDevice> devices;
  GpuList gpus;
  Numerics numerics;                          ///< of this process
  std::vector<std::string> kernel_variables;  ///< "MKL_CBWR=AVX2"
  HostRates rates;                            ///< of one core
  double update_bytes_per_s = 0;              ///< AdamW by all of them: bytes of weights
};

/// This machine's.
std::string processor_name();
/// By text as in /proc/cpuinfo: the name of the model or, on ARM, the numbers that stand for it.
std::string processor_name(std::istream& cpuinfo);

/// Looks, and measures rates: about two seconds.
Machine inspect_machine();

}  // namespace spillway
