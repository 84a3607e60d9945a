#include "core/peers/nccl/nccl_calls.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";

template <typename Function>
void find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (!function)
    throw Error(fmt::format("{} lacks {}; use that of LibTorch 2.11", kLibrary, symbol));
}

NcclCalls load() {
  void* const library = dlopen(kLibrary, RTLD_NOW);
  if (library == nullptr) {
    const char* const why = dlerror();
    throw Error(fmt::format("NCCL cannot be loaded ({}); use a LibTorch for CUDA 13",
                            why != nullptr ? why : kLibrary));
  }
  NcclCalls calls;
  find(library, "ncclGetVersion", calls.get_version);
  find(library, "ncclGetUniqueId", calls.get_unique_id);
  find(library, "ncclCommInitRankConfig", calls.comm_init);
  find(library, "ncclCommGetAsyncError", calls.comm_error);
  find(library, "ncclCommAbort", calls.comm_abort);
  find(library, "ncclSend", calls.send);
  find(library, "ncclRecv", calls.receive);
  find(library, "ncclGetErrorString", calls.text_of);
  return calls;
}

}  // namespace

const NcclCalls& nccl_calls() {
  static const NcclCalls calls = load();
  return calls;
}

}  // namespace spillway
