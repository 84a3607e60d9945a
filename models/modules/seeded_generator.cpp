#include "models/modules/seeded_generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace spillway {
namespace {

/// Guards LibTorch's generator, one per process.
Mutex& turns() {
  static Mutex mutex;
  return mutex;
}

template <typename Use>
auto with_generator(const Use& use) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return use(generator);
}

}  // namespace

SeededGenerator::SeededGenerator(std::uint64_t seed) : turn_(turns()), state_(state()) {
  with_generator([&](at::Generator& generator) { generator.set_current_seed(seed); });
}

SeededGenerator::~SeededGenerator() {
  with_generator([&](at::Generator& generator) { generator.set_state(state_); });
}

at::Tensor SeededGenerator::state() {
  return with_generator([](at::Generator& generator) { return generator.get_state(); });
}

}  // namespace spillway
