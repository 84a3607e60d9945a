#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/os/open_file.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"

/// Contract tests of FileSystem without crashes; each implementation instantiates them in its own
/// file:
///   INSTANTIATE_TEST_SUITE_P(Posix, FileSystemConformance, testing::Values(FileSystemCase{...}));
namespace spillway {

struct FileSystemCase {
  std::string name;
  /// A file system and an empty folder in it; `scratch` is one of the operating system.
  std::function<std::shared_ptr<FileSystem>()> make;
  std::function<FileSystem::Path(FileSystem&, const std::filesystem::path& scratch)> folder;
  friend void PrintTo(const FileSystemCase& test, std::ostream* out) { *out << test.name; }
};

class FileSystemConformance : public ::testing::TestWithParam<FileSystemCase> {
 protected:
  using Names = std::vector<std::string>;

  FileSystem::Path at(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text, Bytes offset = 0) {
    auto file = OpenFile::create(*files_, at(name));
    file.write_all(std::as_bytes(std::span(text)), offset);
    file.sync();
    file.close();
  }
  std::string read(const std::string& name) { return read_file(*files_, at(name), 1_MiB); }
  template <typename Call>
  int code_of(const Call& call) {
    return testing::thrown<IoError>(call).code;
  }

  const testing::TemporaryFolder scratch_;
  const std::shared_ptr<FileSystem> files_ = GetParam().make();
  const FileSystem::Path folder_ = GetParam().folder(*files_, scratch_.path());
};

TEST_P(FileSystemConformance, KeepsTheBytesOfAFile) {
  write("a", "some bytes");
  EXPECT_EQ(read("a"), "some bytes");
  write("empty", "");
  EXPECT_EQ(read("empty"), "");
  EXPECT_EQ(files_->list(folder_), (Names{"a", "empty"}));
}

TEST_P(FileSystemConformance, ReadsGapsAsZeros) {
  write("a", "xy", 3);
  EXPECT_EQ(read("a"), std::string("\0\0\0xy", 5));
}

TEST_P(FileSystemConformance, OverwritesBytesInPlace) {
  auto file = OpenFile::create(*files_, at("a"));
  file.write_all(std::as_bytes(std::span(std::string_view("012345"))), 0);
  file.write_all(std::as_bytes(std::span(std::string_view("ab"))), 2);
  EXPECT_EQ(file.size(), 6u);
  EXPECT_EQ(read("a"), "01ab45");
}

TEST_P(FileSystemConformance, ReservesZeroedSpaceAndKeepsBytes) {
  auto file = OpenFile::create(*files_, at("a"));
  file.preallocate(4);
  EXPECT_EQ(read("a"), std::string(4, '\0'));
  file.write_all(std::as_bytes(std::span(std::string_view("abcd"))), 0);
  file.preallocate(0);
  file.preallocate(2);
  file.preallocate(6);
  EXPECT_EQ(read("a"), std::string("abcd\0\0", 6));
}

TEST_P(FileSystemConformance, ReadsNothingPastTheEnd) {
  write("a", "0123");
  const auto handle = files_->open(at("a"));
  std::vector<std::byte> into(10);
  EXPECT_EQ(files_->pread(handle, into, 4), 0u);
  EXPECT_EQ(files_->pread(handle, into, 100), 0u);
  EXPECT_EQ(files_->pread(handle, into, 3), 1u);
  EXPECT_EQ(into[0], std::byte{'3'});
  files_->close(handle);
  const auto file = OpenFile::open(*files_, at("a"));
  EXPECT_THROW(file.read_all(into, 0), CorruptData);
}

TEST_P(FileSystemConformance, CreatesExclusively) {
  write("a", "old");
  EXPECT_EQ(code_of([&] { files_->create(at("a")); }), EEXIST);
  files_->make_folder(at("f"));
  EXPECT_EQ(code_of([&] { files_->create(at("f")); }), EEXIST);
  EXPECT_EQ(code_of([&] { files_->make_folder(at("a")); }), EEXIST);
  EXPECT_EQ(read("a"), "old");
}

TEST_P(FileSystemConformance, NamesFileAndCauseInErrors) {
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { files_->open(at("no")); }, [&] { files_->unlink(at("no")); },
           [&] { files_->list(at("no")); }, [&] { files_->remove_folder(at("no")); },
           [&] { files_->sync_folder(at("no")); }, [&] { files_->free_bytes(at("no")); }}) {
    const auto error = testing::thrown<IoError>(call);
    EXPECT_EQ(error.code, ENOENT);
    EXPECT_EQ(error.path, at("no")) << error.what();
  }
  EXPECT_EQ(code_of([&] { files_->create(at("no/a")); }), ENOENT);
  EXPECT_EQ(code_of([&] { files_->make_folder(at("no/a")); }), ENOENT);
  EXPECT_EQ(code_of([&] { files_->rename(at("no"), at("a")); }), ENOENT);
  write("a", "");
  EXPECT_EQ(code_of([&] { files_->open(at("a/b")); }), ENOTDIR);
  EXPECT_EQ(code_of([&] { files_->list(at("a")); }), ENOTDIR);
}

TEST_P(FileSystemConformance, RefusesToOpenAFolderAsAFile) {
  files_->make_folder(at("f"));
  const auto error = testing::thrown<IoError>([&] { files_->open(at("f")); });
  EXPECT_EQ(error.code, EISDIR);
  EXPECT_EQ(error.path, at("f"));
}

TEST_P(FileSystemConformance, ReplacesAFileByRename) {
  write("new", "new");
  write("old", "old");
  files_->rename(at("new"), at("old"));
  EXPECT_EQ(files_->list(folder_), Names{"old"});
  EXPECT_EQ(read("old"), "new");
}

TEST_P(FileSystemConformance, KeepsTheContentsOfARenamedFolder) {
  files_->make_folder(at("g.tmp"));
  write("g.tmp/a", "inside");
  files_->sync_folder(at("g.tmp"));
  files_->rename(at("g.tmp"), at("g"));
  files_->sync_folder(folder_);
  EXPECT_EQ(files_->list(folder_), Names{"g"});
  EXPECT_EQ(read("g/a"), "inside");
}

TEST_P(FileSystemConformance, NeitherReplacesNorRemovesANonEmptyFolder) {
  files_->make_folder(at("g"));
  write("g/a", "inside");
  write("file", "");
  files_->make_folder(at("other"));
  EXPECT_EQ(code_of([&] { files_->rename(at("file"), at("g")); }), EISDIR);
  EXPECT_EQ(code_of([&] { files_->rename(at("other"), at("g")); }), ENOTEMPTY);
  EXPECT_EQ(code_of([&] { files_->remove_folder(at("g")); }), ENOTEMPTY);
  EXPECT_EQ(code_of([&] { files_->unlink(at("g")); }), EISDIR);
  files_->unlink(at("g/a"));
  files_->remove_folder(at("g"));
  EXPECT_EQ(files_->list(folder_), (Names{"file", "other"}));
}

TEST_P(FileSystemConformance, KeepsAnOpenFileAfterItsRemoval) {
  write("a", "kept");
  const auto file = OpenFile::open(*files_, at("a"));
  files_->unlink(at("a"));
  write("a", "another");
  std::string text(4, '\0');
  file.read_all(std::as_writable_bytes(std::span(text)), 0);
  EXPECT_EQ(text, "kept");
}

TEST_P(FileSystemConformance, RefusesMoreThanTheDiskHolds) {
  const Bytes free = files_->free_bytes(folder_);
  EXPECT_GT(free, 0u);
  auto file = OpenFile::create(*files_, at("a"));
  const int code = code_of([&] { file.preallocate(Bytes{1} << 60); });
  EXPECT_TRUE(code == ENOSPC || code == EFBIG) << code;
}

TEST_P(FileSystemConformance, NamesBothSizesOfATooLargeFile) {
  write("a", "12345");
  const auto error = testing::thrown<CorruptData>([&] { read_file(*files_, at("a"), 4); });
  EXPECT_NE(std::string(error.what()).find("has 5 B; the limit for such a file is 4 B"),
            std::string::npos)
      << error.what();
}

}  // namespace spillway
