#include "trainer/counting_allocator.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <stdlib.h>

#include <cstring>
#include <mutex>

#include "core/error.h"

namespace spillway {
namespace {

thread_local ActivationMeter* current_meter = nullptr;

/// Before every allocation: who pays for it.
struct Header {
  ActivationMeter* meter;
  Bytes bytes;
};
static_assert(sizeof(Header) <= kAlignment);

void release(void* base) {
  const auto* header = static_cast<const Header*>(base);
  if (header->meter) header->meter->discharge(header->bytes);
  free(base);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release_nothing, cpu};
    if (current_meter) current_meter->charge(bytes);
    void* base = nullptr;
    if (posix_memalign(&base, kAlignment, bytes + kAlignment) != 0) {
      if (current_meter) current_meter->discharge(bytes);
      throw OutOfMemory(Tier::host, bytes, 0, "the system's allocator");
    }
    *static_cast<Header*>(base) = {current_meter, bytes};
    return {static_cast<std::byte*>(base) + kAlignment, base, &release, cpu};
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void release_nothing(void*) {}
};

}  // namespace

void initialize_torch() {
  static std::once_flag once;
  std::call_once(once, [] {
    at::set_num_threads(1);
    at::set_num_interop_threads(1);
    static CountingAllocator allocator;
    c10::SetCPUAllocator(&allocator, /*priority=*/100);
  });
}

MeterScope::MeterScope(ActivationMeter& meter) : previous_(current_meter) {
  current_meter = &meter;
}

MeterScope::~MeterScope() { current_meter = previous_; }

}  // namespace spillway
