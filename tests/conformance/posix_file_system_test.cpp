#include "tests/conformance/file_system_conformance.h"

namespace spillway {
namespace {

/// Not owned: it is there as long as the program.
std::shared_ptr<FileSystem> make() { return {std::shared_ptr<void>(), &posix_file_system()}; }

INSTANTIATE_TEST_SUITE_P(Posix, FileSystemConformance,
                         ::testing::Values(FileSystemCase{
                             "posix", make,
                             [](FileSystem&, const auto& scratch) { return scratch; }}),
                         [](const auto& test) { return test.param.name; });

TEST(PosixFileSystem, ErrorsOfOpenFilesNameTheFile) {
  const testing::TemporaryFolder folder;
  folder.write("a", "x");
  auto file = OpenFile::open(posix_file_system(), folder / "a");
  const auto error = testing::thrown<IoError>(
      [&] { file.write_all(std::as_bytes(std::span(std::string_view("y"))), 0); });
  EXPECT_EQ(error.code, EBADF) << "opened for reading";
  EXPECT_EQ(error.path, folder / "a");
}

}  // namespace
}  // namespace spillway
