#include "core/device/mapped_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// Within a page of 2^64 this wraps to 0, which mmap() refuses.
Bytes mapped_bytes(Bytes bytes) { return round_up(std::max<Bytes>(bytes, 1), kPage); }

Bytes free_host_bytes() {
  return static_cast<Bytes>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<Bytes>(sysconf(_SC_PAGESIZE));
}

std::byte* map(Bytes bytes, Tier tier, const std::string& owner) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (tier == Tier::device ? MAP_NORESERVE : 0);
  void* const pages = mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (pages == MAP_FAILED) throw SystemOutOfMemory(tier, bytes, free_host_bytes(), owner);
  madvise(pages, mapped_bytes(bytes), MADV_HUGEPAGE);  // advice: a refusal is no failure
  return static_cast<std::byte*>(pages);
}

}  // namespace

SystemOutOfMemory::SystemOutOfMemory(Tier of_tier, Bytes bytes, Bytes free, const std::string& who)
    : OutOfMemory(of_tier, bytes, free, who),
      message_(fmt::format(
          "the system gave no memory: {} asked it for {} of address space, while {} of the "
          "machine's memory are free; raise the limit of the process (ulimit -v) or of its memory "
          "group, or lower the memory of devices or host_memory",
          who, format_bytes(bytes), format_bytes(free))) {}

MappedMemory::MappedMemory(Bytes bytes, Tier tier, const std::string& owner, BudgetShare share)
    : share_(std::move(share)), size_(bytes), data_(map(bytes, tier, owner)) {}

MappedMemory::~MappedMemory() { munmap(data_, mapped_bytes(size_)); }

}  // namespace spillway
