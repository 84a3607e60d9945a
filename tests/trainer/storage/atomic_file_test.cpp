#include "trainer/storage/atomic_file.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/support/disk/crash_fs.h"

namespace spillway {
namespace {

using testing::CrashFs;

TEST(AtomicFile, KeepsTheOldFileOrTheNewAfterACrash) {
  const std::string old_text(1500, 'o'), new_text(2500, 'n');
  CrashFs disk;
  const auto replace = [&](const std::string& text) {
    AtomicFile file("/a", disk);
    file.write(text.substr(0, 700));
    file.write(text.substr(700));
    file.commit();
    return disk.num_changes();
  };
  const auto before = replace(old_text), after = replace(new_text);
  for (auto change = before; change <= after; ++change) {
    for (unsigned seed = 0; seed < 200; ++seed) {
      std::mt19937 random(seed);
      CrashFs left(disk.after_crash(change, seed == 0 ? nullptr : &random));
      const auto text = read_file(left, "/a", 1_MiB);
      if (change == after)
        EXPECT_EQ(text, new_text) << seed;
      else
        EXPECT_TRUE(text == new_text || text == old_text) << change << " " << seed;
      AtomicFile again("/a", left);
      again.write("third");
      again.commit();
      EXPECT_EQ(read_file(left, "/a", 1_MiB), "third");
    }
  }
}

}  // namespace
}  // namespace spillway
