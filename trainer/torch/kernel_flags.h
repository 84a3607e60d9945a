#pragma once

#include <map>
#include <string>

namespace spillway {

/// The flags of LibTorch, by their names in Python, that choose kernels for the whole process, and
/// with them bits. "torch.backends.mkldnn.enabled": "true".
using KernelFlags = std::map<std::string, std::string>;

/// Those that operations on CPUs use, or on GPUs too: the first session with a GPU sets some of
/// the latter itself.
KernelFlags kernel_flags(bool on_gpus);

/// "X is B now, but was A", for the first flag that differs; empty if none does.
std::string difference(const KernelFlags& then, const KernelFlags& now);

}  // namespace spillway
