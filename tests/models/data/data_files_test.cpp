#include "models/data/data_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/resource_limit.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;
using testing::thrown;

std::string read(const DataFiles& files, std::size_t file) {
  std::string text(files.size(file), '\0');
  files.read(file, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string problem_of(const DataFiles& files, std::size_t file) {
  return thrown<Error>([&] { read(files, file); }).what();
}

/// A file that was written an hour ago: file systems have coarse clocks.
std::string write_old(const TemporaryFolder& folder, const std::string& name,
                      const std::string& text) {
  const std::string path = folder.write(name, text);
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  return path;
}

void overwrite(const std::string& path, const std::string& text) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file << text;
}

constexpr const char* kRemedy =
    "; put it back as it was and resume with --retry-failed, or train in another output_dir";

TEST(DataFiles, ReadAtAnyOffset) {
  const TemporaryFolder folder;
  const DataFiles files({folder.write("a", "some bytes")});
  std::string text(5, '\0');
  files.read(0, 5, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "bytes");
  EXPECT_EQ(files.size(0), 10u);
}

TEST(DataFiles, MapAtAnyOffset) {
  const TemporaryFolder folder;
  std::string text(3 * kPage, 'a');
  text.replace(2 * kPage - 3, 6, "middle");
  const std::string path = write_old(folder, "a", text);
  const DataFiles files({path});
  for (const Bytes begin : {Bytes{0}, 2 * kPage - 3}) {
    const auto bytes = files.map(0, begin, kPage);
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.get()), kPage),
              text.substr(begin, kPage));
  }
  overwrite(path, "x");
  EXPECT_NE(std::string(thrown<Error>([&] { files.map(0, 0, 1); }).what()).find("was written to"),
            std::string::npos);
}

TEST(DataFiles, NameAFileThatBecomesShorter) {
  const TemporaryFolder folder;
  const std::string path = write_old(folder, "a", "0123456789");
  const DataFiles files({path});
  for (const unsigned size : {4u, 0u}) {
    fs::resize_file(path, size);
    EXPECT_EQ(problem_of(files, 0),
              "data file '" + path + "' was changed during the run: it had 10 bytes, now it has " +
                  std::to_string(size) + " bytes" + kRemedy);
  }
}

TEST(DataFiles, NameAFileThatIsModified) {
  const TemporaryFolder folder;
  const std::string path = write_old(folder, "a", "0123456789"),
                    longer = write_old(folder, "b", "0123456789");
  const DataFiles files({path, longer});
  EXPECT_EQ(read(files, 0), "0123456789");
  overwrite(path, "x");
  EXPECT_EQ(problem_of(files, 0),
            "data file '" + path + "' was written to during the run" + kRemedy);
  std::ofstream(longer, std::ios::app) << "more";
  EXPECT_NE(problem_of(files, 1).find("it had 10 bytes, now it has 14 bytes"), std::string::npos);
}

/// An open file cannot change by that.
TEST(DataFiles, KeepAnOpenFileThatIsRemovedOrReplaced) {
  const TemporaryFolder folder;
  const DataFiles files({write_old(folder, "a", "abc"), write_old(folder, "b", "def")});
  fs::remove(folder / "a");
  write_old(folder, "c", "xyz");
  fs::rename(folder / "c", folder / "b");
  EXPECT_EQ(read(files, 0) + read(files, 1), "abcdef");
}

TEST(DataFiles, RefuseAnotherFileWhenReopening) {
  const TemporaryFolder folder;
  const std::string gone = write_old(folder, "a", "abc"), other = write_old(folder, "b", "def");
  const DataFiles files({gone, other, write_old(folder, "c", "ghi")}, 1);
  std::string text;
  for (std::size_t file = 0; file < 3; ++file) text += read(files, file);
  EXPECT_EQ(text, "abcdefghi");
  fs::remove(gone);
  fs::copy_file(folder / "c", folder / "d");
  fs::rename(folder / "d", other);
  EXPECT_EQ(problem_of(files, 0),
            "data file '" + gone + "' cannot be opened again: No such file or directory" + kRemedy);
  EXPECT_EQ(problem_of(files, 1),
            "data file '" + other + "' is no longer the file that the run began with" + kRemedy);
  EXPECT_EQ(read(files, 2), "ghi");
}

/// The lowest free descriptor, and so the number of open ones if there is no gap.
int free_descriptor() {
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(file);
  return file;
}

TEST(DataFiles, UseFewDescriptorsForManyFiles) {
  const TemporaryFolder folder;
  for (int i = 0; i < 300; ++i) folder.write("data/" + std::to_string(1000 + i), std::to_string(i));
  const int in_use = free_descriptor();
  const testing::ResourceLimit limit(RLIMIT_NOFILE, static_cast<rlim_t>(in_use) + 40);
  const DataFiles files({folder / "data"});
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(read(files, i), std::to_string(i));
  // Others may need descriptors: then it works with one.
  const testing::ResourceLimit fewer(RLIMIT_NOFILE, static_cast<rlim_t>(free_descriptor()));
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(read(files, i), std::to_string(i));
}

TEST(DataFiles, RefuseAFifoAtOnce) {
  const TemporaryFolder folder;
  const std::string path = folder / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(thrown<ConfigError>([&] { DataFiles({path}); }).problem,
            "'" + path + "' is neither a regular file nor a folder");
}

TEST(DataFiles, CanBeMoved) {
  const TemporaryFolder folder;
  DataFiles first({folder.write("a", "abc")});
  const DataFiles second(std::move(first));
  EXPECT_EQ(read(second, 0), "abc");
}

}  // namespace
}  // namespace spillway
