#pragma once

#include <map>
#include <string>

namespace spillway {

/// The flags of LibTorch, by their names in Python, that choose kernels for the whole process, and
/// with them bits. "torch.backends.mkldnn.enabled": "true".
using KernelFlags = std::map<std::string, std::string>;

/// Those that operations on CPUs use, or on GPUs too: ReproducibleGpuKernels sets some of the
/// latter.
KernelFlags kernel_flags(bool on_gpus);

/// While one of these lives, LibTorch uses only kernels of GPUs that give the same bits in every
/// run, and computes fp32 in fp32. When the last one goes, the process has its own flags again,
/// unless it has changed one in the meantime. Thread-safe.
class ReproducibleGpuKernels {
 public:
  ReproducibleGpuKernels();
  ~ReproducibleGpuKernels();
  ReproducibleGpuKernels(const ReproducibleGpuKernels&) = delete;
  ReproducibleGpuKernels& operator=(const ReproducibleGpuKernels&) = delete;
};

/// "X is B now, but was A", for the first flag that differs; empty if none does.
std::string difference(const KernelFlags& then, const KernelFlags& now);

}  // namespace spillway
