#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/conformance/device_conformance.h"

namespace spillway {
namespace {

std::unique_ptr<Device> make_cpu(Bytes budget) { return make_cpu_device("cpu:0", budget); }

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance, testing::Values(DeviceCase{"cpu", make_cpu}),
                         [](const auto& test) { return test.param.name; });

Bytes resident_bytes() {
  Bytes total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<Bytes>(sysconf(_SC_PAGESIZE));
}

TEST(CpuDevice, IsOfKindCpu) { EXPECT_EQ(make_cpu(0)->kind(), "cpu"); }

TEST(CpuDevice, AnArenaCostsNoMemoryUntilItIsTouched) {
  const auto device = make_cpu(64_GiB);
  const Bytes before = resident_bytes();
  const auto memory = device->allocate(64_GiB);
  memory->data()[63_GiB] = std::byte{1};
  EXPECT_LT(resident_bytes(), before + 16_MiB);
}

TEST(CpuDevice, MemoryGoesBackToTheSystem) {
  const auto device = make_cpu(64_MiB);
  auto memory = device->allocate(64_MiB);
  std::fill_n(memory->data(), 64_MiB, std::byte{1});
  const Bytes with = resident_bytes();
  memory.reset();
  EXPECT_LT(resident_bytes(), with - 48_MiB);
}

TEST(CpuDevice, HostMemoryThatCannotBeIsRefused) {
  const auto device = make_cpu(0);
  for (const Bytes bytes : {Bytes{1} << 60, ~Bytes{0}}) {
    const OutOfMemory e = out_of_memory([&] { device->allocate_host(bytes); });
    EXPECT_EQ(e.tier, Tier::host);
    EXPECT_EQ(e.requested, bytes);
    EXPECT_GT(e.available, 0u);
  }
}

TEST(CpuDevice, ARefusalByTheSystemTakesNothingFromTheBudget) {
  constexpr Bytes kHuge = Bytes{1} << 60;
  const auto device = make_cpu(kHuge);
  out_of_memory([&] { device->allocate(kHuge); });
  const auto page = device->allocate(kPage);
  EXPECT_EQ(out_of_memory([&] { device->allocate(kHuge); }).available, kHuge - kPage);
}

TEST(CpuDevice, ErrorsNameTheDevice) {
  const auto device = make_cpu_device("cpu:7", 1_MiB);
  const OutOfMemory e = out_of_memory([&] { device->allocate(2_MiB); });
  EXPECT_NE(std::string(e.what()).find("cpu:7"), std::string::npos) << e.what();
}

}  // namespace
}  // namespace spillway
