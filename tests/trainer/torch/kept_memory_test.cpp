#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdlib>
#include <future>
#include <vector>

#include "spillway/units.h"
#include "trainer/torch/counting_allocator.h"

namespace spillway {
namespace {

constexpr std::size_t kPageBytes = 4096;

void* written(std::size_t bytes) {
  auto* const block = static_cast<volatile char*>(std::malloc(bytes));
  for (std::size_t at = 0; at < bytes; at += kPageBytes) block[at] = 1;
  return const_cast<char*>(block);
}

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

/// Page faults when a thread writes large blocks again that it has freed, for which the first heap
/// of its arena has no room.
long repeated_faults() {
  return std::async(std::launch::async,
                    [] {
                      std::vector<void*> held;
                      for (int i = 0; i < 14; ++i) held.push_back(written(4_MiB));
                      long faults = 0;
                      for (int i = 0; i < 3; ++i) {
                        const long before = page_faults();
                        void* const blocks[]{written(6_MiB), written(6_MiB)};
                        faults = page_faults() - before;
                        for (void* block : blocks) std::free(block);
                      }
                      for (void* block : held) std::free(block);
                      return faults;
                    })
      .get();
}

TEST(KeptMemory, KeepsFreedBlocksOfThreads) {
  { const KeptMemory once; }  // from here on glibc does not move its thresholds
  EXPECT_GT(repeated_faults(), 1000) << "the control";
  const KeptMemory kept;
  EXPECT_LT(repeated_faults(), 100);
}

}  // namespace
}  // namespace spillway
