#include "core/os/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/support/disk/temporary_folder.h"

namespace spillway {
namespace {

TEST(HostMemory, ReadsWhatTheSystemReports) {
  const HostMemory memory = host_memory();
  const auto pages = static_cast<Bytes>(sysconf(_SC_PHYS_PAGES));
  EXPECT_GE(memory.total, 64_MiB);
  EXPECT_LE(memory.total, pages * static_cast<Bytes>(sysconf(_SC_PAGESIZE)));
  EXPECT_GT(memory.available, 0u);
  EXPECT_LE(memory.available, memory.total);
}

/// A machine of 1000 KiB, 800 of them free, as files.
class FakeSystem {
 public:
  FakeSystem() { write("proc/meminfo", "MemTotal:  1000 kB\nMemAvailable:  800 kB\n"); }
  void write(const std::string& name, const std::string& text) { root_.write(name, text); }
  HostMemory memory() const { return host_memory(root_.path()); }

 private:
  testing::TemporaryFolder root_;
};

void expect_memory(const FakeSystem& system, Bytes total, Bytes available) {
  EXPECT_EQ(system.memory().total, total);
  EXPECT_EQ(system.memory().available, available);
}

TEST(HostMemory, UsesTheMachineWithoutAGroup) {
  FakeSystem system;
  expect_memory(system, 1000_KiB, 800_KiB);
  system.write("sys/fs/cgroup/memory.max", "max\n");
  system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  system.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n");
  expect_memory(system, 1000_KiB, 800_KiB);
}

TEST(HostMemory, AppliesTheGroupLimitAndCountsCachedFilesAsFree) {
  FakeSystem system;
  system.write("sys/fs/cgroup/memory.max", "512000\n");
  system.write("sys/fs/cgroup/memory.current", "300000\n");
  system.write("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 40000\nactive_file 60000\n");
  expect_memory(system, 512000, 512000 - 200000);
}

TEST(HostMemory, SupportsGroupsOfTheFirstVersion) {
  FakeSystem system;
  const std::string folder = "sys/fs/cgroup/memory/";
  system.write(folder + "memory.limit_in_bytes", "512000\n");
  system.write(folder + "memory.usage_in_bytes", "300000\n");
  system.write(folder + "memory.stat",
               "inactive_file 1\ntotal_inactive_file 40000\ntotal_active_file 60000\n");
  expect_memory(system, 512000, 512000 - 200000);
  system.write(folder + "memory.limit_in_bytes", "100000\n");
  expect_memory(system, 100000, 0);
}

}  // namespace
}  // namespace spillway
