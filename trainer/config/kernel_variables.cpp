#include "trainer/config/kernel_variables.h"

#include <cstdlib>

namespace spillway {

std::vector<std::string> kernel_variables() {
  std::vector<std::string> set;
  for (const char* name :
       {"ATEN_CPU_CAPABILITY", "DNNL_CPU_ISA_HINTS", "DNNL_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA",
        "GLIBC_TUNABLES", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS",
        "ONEDNN_CPU_ISA_HINTS", "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA"}) {
    if (const char* value = std::getenv(name)) set.push_back(std::string(name) + "=" + value);
  }
  return set;
}

}  // namespace spillway
