#pragma once

#include <string>
#include <vector>

#include "spillway/units.h"

namespace spillway {

/// The bits that this process computes, as hashes over the results of small probe operations.
/// LibTorch, MKL and oneDNN select kernels by the processor, by environment variables and by flags
/// of the process; a choice that changes bits changes a hash, whatever its reason.
struct Numerics {
  /// Probes of one kind.
  struct Group {
    std::string name;          ///< a field of contracts: "products_fp32"
    bool on_host = false;      ///< computed on the host for trials on GPUs, too
    std::string xxh3;          ///< of all results
    Bytes activation_bytes{};  ///< peaks, summed: kernels of equal bits may need different memory
    bool operator==(const Group&) const = default;
  };
  std::vector<Group> groups;
  double seconds = 0;  ///< of all probes, run in parallel

  /// A hash over all groups.
  std::string xxh3() const;
  Bytes activation_bytes() const;
};

/// Runs each group's probes on a new thread, as training runs operations: on one thread, with the
/// default rounding. The first product in bf16 takes half of the time, because it initializes
/// oneDNN; the other groups run meanwhile.
Numerics measure_numerics();

/// Measured at the first call with the flags that LibTorch has now (kernel_flags() of CPUs).
const Numerics& numerics();

}  // namespace spillway
