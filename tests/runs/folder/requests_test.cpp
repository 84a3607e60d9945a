#include "runs/folder/requests.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "trainer/storage/run_lock.h"

namespace spillway::testing {
namespace {

using namespace std::chrono_literals;

/// Waits until there is one.
RequestInbox::Request next(RequestInbox& inbox) {
  std::vector<RequestInbox::Request> taken;
  while (taken.empty()) taken = inbox.take();
  return taken.front();
}

/// Files that are left.
int num_files(const TemporaryFolder& folder) {
  int num = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "requests")) {
    num += entry.is_regular_file() ? 1 : 0;
  }
  return num;
}

TEST(Requests, GetAnAnswerFromTheOwner) {
  const TemporaryFolder folder;
  const RunLock lock(folder.path());
  RequestInbox inbox(folder.path());
  EXPECT_TRUE(inbox.take().empty());
  for (const int n : {1, 2}) {
    auto reply = std::async(std::launch::async, [&] {
      return ask_owner(folder.path(), {{"number", n}}, 100s);
    });
    const RequestInbox::Request request = next(inbox);
    EXPECT_EQ(request.content, (Json{{"number", n}}));
    inbox.reply(request, {{"text", n}});
    EXPECT_EQ(reply.get().value(), (Json{{"text", n}}));
    EXPECT_EQ(num_files(folder), 0);
  }
}

TEST(Requests, AreTakenInTheOrderInWhichTheyCame) {
  const TemporaryFolder folder;
  const RunLock lock(folder.path());
  RequestInbox inbox(folder.path());
  for (const char* id : {"0003", "0001", "0002"}) {
    folder.write(std::string("requests/") + id + ".request", std::string("{\"id\": 1}"));
  }
  folder.write("requests/0004.request", "{ damaged");
  const auto taken = inbox.take();
  ASSERT_EQ(taken.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(taken[i].id, "000" + std::to_string(i + 1));
  EXPECT_TRUE(taken[3].content.is_null());
  EXPECT_TRUE(inbox.take().empty());
}

TEST(Requests, LeaveNothingWithoutAnOwner) {
  const TemporaryFolder folder;
  EXPECT_EQ(ask_owner(folder.path(), {{"number", 1}}, 100s), std::nullopt);
  EXPECT_EQ(num_files(folder), 0);
}

TEST(Requests, GiveUpOnAnOwnerThatDoesNotAnswer) {
  const TemporaryFolder folder;
  const RunLock lock(folder.path());
  const std::string late = thrown<Error>([&] {
                             ask_owner(folder.path(), {{"number", 1}}, 50ms);
                           }).what();
  EXPECT_NE(late.find(" has not answered within 0.05 s; the call was withdrawn; try again"),
            std::string::npos)
      << late;
  EXPECT_EQ(num_files(folder), 0);
}

/// Nobody knows whether the call had its effect.
TEST(Requests, SurviveAnOwnerThatEndsBeforeItAnswers) {
  const TemporaryFolder folder;
  std::optional<RunLock> lock(std::in_place, folder.path());
  RequestInbox inbox(folder.path());
  auto asked = std::async(std::launch::async, [&] {
    return std::string(thrown<Error>([&] {
                         ask_owner(folder.path(), {{"number", 1}}, 100s);
                       }).what());
  });
  next(inbox);
  lock.reset();
  EXPECT_EQ(asked.get(),
            "the process that trained the run ended before it answered; the call may still take "
            "effect, which 'spillway results' shows");
  EXPECT_EQ(num_files(folder), 1);
  const RequestInbox later(folder.path());
  EXPECT_EQ(num_files(folder), 0);
}

}  // namespace
}  // namespace spillway::testing
