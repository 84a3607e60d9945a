#include "spilling/tiers/memory_store.h"

#include "tests/conformance/store_conformance.h"

namespace spillway {
namespace {

std::unique_ptr<Store> make(Device& device, const std::filesystem::path&) {
  return std::make_unique<MemoryStore>(device);
}

INSTANTIATE_TEST_SUITE_P(Memory, StoreConformance, ::testing::Values(StoreCase{"memory", make}),
                         [](const auto& test) { return test.param.name; });

TEST(MemoryStore, NamesHostMemoryInRefusals) {
  const auto device = make_cpu_device("cpu:0", 1_MiB);
  MemoryStore store(*device);
  const auto error = testing::thrown<OutOfMemory>([&] { store.allocate(Bytes{1} << 60); });
  EXPECT_EQ(error.tier, Tier::host);
}

}  // namespace
}  // namespace spillway
