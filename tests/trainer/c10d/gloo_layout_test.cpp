#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

/// The build sees c10d's header with few names of Gloo (trainer/c10d/gloo). If that changed the
/// size of a class, then programs would allocate other sizes than LibTorch does.
namespace {

/// How often each size was allocated while this is set.
std::atomic<bool> is_counting = false;
std::array<std::atomic<int>, 4096> allocations{};

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (is_counting && size < allocations.size()) ++allocations[size];
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace spillway::testing {
namespace {

using c10d::ProcessGroupGloo;

/// Allocations of this size while `work` runs.
template <typename Work>
int allocated(std::size_t size, const Work& work) {
  for (auto& each : allocations) each = 0;
  is_counting = true;
  const auto made = work();
  is_counting = false;
  return allocations[size];
}

TEST(GlooLayout, IsThatOfLibTorch) {
  const auto options = ProcessGroupGloo::Options::create(std::chrono::seconds(5));
  options->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto group = c10::make_intrusive<ProcessGroupGloo>(store, 0, 1, options);
  const auto split = [&] { return group->split(store, {0}, options); };  // LibTorch makes another
  EXPECT_GE(allocated(sizeof(ProcessGroupGloo), split), 1);
  EXPECT_EQ(allocated(sizeof(ProcessGroupGloo) + sizeof(void*), split), 0);
  EXPECT_EQ(allocated(sizeof(ProcessGroupGloo) - sizeof(void*), split), 0);
  const auto make_options = [] { return ProcessGroupGloo::Options::create_default(); };
  EXPECT_GE(allocated(sizeof(ProcessGroupGloo::Options), make_options), 1);
}

}  // namespace
}  // namespace spillway::testing
