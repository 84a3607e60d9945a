#include "trainer/profile/machine.h"

#include <gtest/gtest.h>

#include <sstream>

#include "core/device/device.h"
#include "trainer/profile/copy_rates.h"

namespace spillway {
namespace {

std::string name_in(const std::string& cpuinfo) {
  std::istringstream in(cpuinfo);
  return processor_name(in);
}

TEST(ProcessorName, IsTheModelName) {
  EXPECT_EQ(name_in("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9B14\n\n"
                    "processor\t: 1\nmodel name\t: another\n"),
            "AMD EPYC 9B14");
}

TEST(ProcessorName, IsMadeOfTheNumbersOfTheFirstArmCore) {
  EXPECT_EQ(name_in("processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\n"
                    "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\n"
                    "CPU part\t: 0xd0c\nCPU revision\t: 1\n\nprocessor\t: 1\nCPU part\t: 0xd40\n"),
            "CPU implementer 0x41, CPU architecture 8, CPU variant 0x3, CPU part 0xd0c, "
            "CPU revision 1");
}

TEST(ProcessorName, IsUnknownWithoutInformation) {
  EXPECT_EQ(name_in(""), "unknown");
  EXPECT_EQ(name_in("processor\t: 0\nmodel name\t:\nno colon\n: no key\n"), "unknown");
}

TEST(CopyRates, BetweenDevicesHaveTheLinkOfTheReceiver) {
  const auto slow = make_cpu_device("cpu:0", 8_MiB, {.link_bytes_per_s = 64_MiB}),
             fast = make_cpu_device("cpu:1", 8_MiB);
  const double link = 64 << 20;
  EXPECT_LT(measure_copies(*fast, *slow), 1.01 * link);
  EXPECT_GT(measure_copies(*slow, *fast), 2 * link);
}

}  // namespace
}  // namespace spillway
