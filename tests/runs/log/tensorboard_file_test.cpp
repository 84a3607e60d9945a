#include "runs/log/tensorboard_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "runs/log/event_log.h"
#include "runs/log/metrics_files.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/made_up_run.h"

namespace spillway::testing {
namespace {

TEST(Tensorboard, HasChecksumsOfCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
}

/// The first twelve bytes of event files that TensorFlow writes: their first record has 24 bytes.
TEST(Tensorboard, FramesRecordsAsTensorFlowDoes) {
  const std::string record = tfrecord(std::string(24, 'x'));
  EXPECT_EQ(record.substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xA3\x7FK\"", 12));
  EXPECT_EQ(record.size(), 12 + 24 + 4u);
}

std::vector<std::string> event_files(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("events.out.tfevents.")) names.push_back(name);
  }
  return names;
}

/// The payloads of a file's records, whose framing must be right.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  for (std::size_t at = 0; at < file.size();) {
    std::uint64_t size = 0;
    std::memcpy(&size, file.data() + at, sizeof size);
    records.push_back(file.substr(at + 12, size));
    const std::string again = tfrecord(records.back());
    EXPECT_EQ(file.substr(at, again.size()), again);
    at += again.size();
  }
  return records;
}

class TensorboardOfARun : public ::testing::Test {
 protected:
  std::vector<std::string> records(const std::string& trial = "trial 0") {
    const auto files = event_files(folder_ / ("trials/" + trial));
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? std::vector<std::string>{}
                         : records_of(folder_.read("trials/" + trial + "/" + files.front()));
  }
  static auto num_with(const std::vector<std::string>& records, const char* text) {
    return std::ranges::count_if(records, [&](const auto& r) { return r.find(text) != r.npos; });
  }
  void write_log() {
    EventLog log(folder_ / kEventFile);
    log.add(made_up_run_event(2));
    for (const auto& event : made_up_events()) log.add(to_json(event));
    log.flush();
  }

  TemporaryFolder folder_;
};

TEST_F(TensorboardOfARun, HasTheRowsOfTheMetricsAndTheSweptValues) {
  write_log();
  MetricsFiles{folder_.path(), 1e9};
  const auto of_done = records(), of_failed = records("trial 1");
  EXPECT_EQ(of_done.size(), 6u);  // version, session, start, two steps, end
  EXPECT_EQ(num_with(of_done, "train/loss"), 2);
  EXPECT_EQ(num_with(of_done, "eval/loss"), 2);
  EXPECT_EQ(num_with(of_done, "_hparams_/session_start_info"), 1);
  EXPECT_EQ(num_with(of_done, "_hparams_/session_end_info"), 1);
  EXPECT_EQ(num_with(of_failed, "train/loss"), 0);
  EXPECT_EQ(num_with(of_failed, "_hparams_/session_end_info"), 1);
}

TEST_F(TensorboardOfARun, IsReplacedByALaterProgram) {
  write_log();
  MetricsFiles{folder_.path(), 1e9};
  const auto first = event_files(folder_ / "trials/trial 0").front();
  const auto content = folder_.read("trials/trial 0/" + first);
  folder_.write("trials/trial 0/events.out.tfevents.1.of-a-user", "kept");
  MetricsFiles{folder_.path(), 1e9};
  auto files = event_files(folder_ / "trials/trial 0");
  ASSERT_EQ(files.size(), 3u);
  std::ranges::sort(files);
  EXPECT_EQ(files[1], first);  // TensorBoard reads them in this order
  EXPECT_EQ(folder_.read("trials/trial 0/" + first), "");
  EXPECT_EQ(folder_.read("trials/trial 0/" + files[2]), content);
  EXPECT_EQ(folder_.read("trials/trial 0/events.out.tfevents.1.of-a-user"), "kept");
}

TEST_F(TensorboardOfARun, GoesWithTheRun) {
  write_log();
  MetricsFiles{folder_.path(), 1e9};
  folder_.write("trials/trial 0/events.out.tfevents.1.of-a-user", "kept");
  remove_tensorboard_files(folder_ / "trials/trial 0");
  EXPECT_EQ(event_files(folder_ / "trials/trial 0"),
            std::vector<std::string>{"events.out.tfevents.1.of-a-user"});
}

TEST_F(TensorboardOfARun, IsWrittenOnRequestOnly) {
  write_log();
  MetricsFiles{folder_.path()};
  EXPECT_TRUE(event_files(folder_ / "trials/trial 0").empty());
}

}  // namespace
}  // namespace spillway::testing
