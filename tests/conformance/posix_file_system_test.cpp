#include <sys/stat.h>

#include "tests/conformance/file_system_conformance.h"

namespace spillway {
namespace {

/// Not owned: it lives as long as the program.
std::shared_ptr<FileSystem> make() { return {std::shared_ptr<void>(), &posix_file_system()}; }

INSTANTIATE_TEST_SUITE_P(Posix, FileSystemConformance,
                         ::testing::Values(FileSystemCase{
                             "posix", make,
                             [](FileSystem&, const auto& scratch) { return scratch; }}),
                         [](const auto& test) { return test.param.name; });

TEST(PosixFileSystem, NamesAnOpenFileInErrors) {
  const testing::TemporaryFolder folder;
  folder.write("a", "x");
  auto file = OpenFile::open(posix_file_system(), folder / "a");
  const auto error = testing::thrown<IoError>(
      [&] { file.write_all(std::as_bytes(std::span(std::string_view("y"))), 0); });
  EXPECT_EQ(error.code, EBADF) << "opened for reading";
  EXPECT_EQ(error.path, folder / "a");
}

/// Opening each of them would block, or reading would never end.
TEST(PosixFileSystem, RefusesASpecialFileAtOnce) {
  const testing::TemporaryFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto problem = [](const std::string& path) {
    return std::string(
        testing::thrown<CorruptData>([&] { OpenFile::open(posix_file_system(), path); }).what());
  };
  EXPECT_EQ(problem(fifo), fifo + " is a FIFO, not a regular file");
  EXPECT_EQ(problem("/dev/zero"), "/dev/zero is a device, not a regular file");
}

}  // namespace
}  // namespace spillway
