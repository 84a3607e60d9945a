#include "core/device/cuda/pinned_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

#include "core/device/cuda/gpu.h"
#include "core/os/host_memory.h"

namespace spillway {
namespace {

constexpr Bytes kSlice = 64_GiB;         // locked by one call
constexpr Bytes kTouchedByOne = 16_MiB;  // takes milliseconds, much longer than starting a thread
constexpr Bytes kMostThreads = 16;

Bytes lockable_bytes() {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? limit.rlim_cur : std::numeric_limits<Bytes>::max();
}

/// Touching memory that the machine does not have would kill the process, so check first.
Bytes require_available(Bytes bytes, const std::string& owner) {
  const Bytes available = host_memory().available;
  if (bytes > available) throw OutOfMemory(Tier::host, bytes, available, owner);
  return bytes;
}

void touch(std::byte* data, Bytes begin, Bytes end) {
  for (Bytes i = begin; i < end; i += kPage) static_cast<volatile std::byte*>(data)[i] = {};
}

/// The thread that touches a page first clears it and places it near its processor.
void touch_in_parallel(std::byte* data, Bytes bytes) {
  const Bytes cores = std::max(1u, std::thread::hardware_concurrency());
  const Bytes num_parts =
      std::clamp<Bytes>(bytes / kTouchedByOne, 1, std::min(cores, kMostThreads));
  const Bytes part = round_up(bytes / num_parts + 1, 2_MiB);  // no huge page between two threads
  std::vector<std::jthread> threads;
  for (Bytes begin = part; begin < bytes; begin += part) {
    threads.emplace_back([=] { touch(data, begin, std::min(bytes, begin + part)); });
  }
  touch(data, 0, std::min(bytes, part));
}

}  // namespace

PinnedMemory::PinnedMemory(int gpu, Bytes bytes, const std::string& owner)
    : gpu_(gpu), memory_(require_available(bytes, owner), Tier::host, owner) {
  touch_in_parallel(data(), bytes);
  try {
    on_gpu(gpu_, [&] { lock(owner); });
  } catch (...) {
    unlock();
    throw;
  }
}

PinnedMemory::~PinnedMemory() { unlock(); }

void PinnedMemory::lock(const std::string& owner) {
  while (locked_ < size()) {
    const Bytes slice = std::min(kSlice, size() - locked_);
    const cudaError_t code = cudaHostRegister(data() + locked_, slice, cudaHostRegisterPortable);
    if (code != cudaSuccess) {
      cudaGetLastError();
      throw_not_lockable(code, size(), lockable_bytes(), owner);
    }
    locked_ += slice;
  }
}

void PinnedMemory::unlock() noexcept {
  if (locked_ == 0) return;
  end_on_gpu(gpu_, [this] {
    for (Bytes begin = 0; begin < locked_; begin += kSlice) cudaHostUnregister(data() + begin);
  });
}

}  // namespace spillway
