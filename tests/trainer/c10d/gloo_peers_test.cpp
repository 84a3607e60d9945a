#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdlib>
#include <future>
#include <set>
#include <thread>

#include "core/peers/framed_peers.h"
#include "spillway/error.h"
#include "tests/conformance/peers_conformance.h"
#include "tests/support/check/contains.h"
#include "tests/support/check/thrown.h"
#include "trainer/c10d/gloo_pipes.h"
#include "trainer/c10d/meeting.h"

namespace spillway::testing {
namespace {

constexpr std::chrono::seconds kLong(30);
constexpr std::chrono::milliseconds kShort(300);

/// The hosts connect at the same time, each with a store of its own.
std::vector<std::unique_ptr<Peers>> by_gloo(std::span<PeersListener* const> listeners) {
  const Rendezvous rendezvous = Rendezvous::open({});
  std::vector<std::future<std::unique_ptr<Peers>>> connecting;
  for (std::size_t h = 0; h < listeners.size(); ++h) {
    connecting.push_back(std::async(std::launch::async, [&, h]() -> std::unique_ptr<Peers> {
      const Rendezvous joined = Rendezvous::join(rendezvous.endpoint(), kLong);
      const HostGroup group{.name = "epoch 1",
                            .number = static_cast<int>(h),
                            .size = static_cast<int>(listeners.size())};
      return std::make_unique<FramedPeers>(group.number, connect_by_gloo(joined, group, kLong),
                                           *listeners[h]);
    }));
  }
  std::vector<std::unique_ptr<Peers>> peers;
  for (auto& each : connecting) peers.push_back(each.get());
  return peers;
}

INSTANTIATE_TEST_SUITE_P(Gloo, PeersConformance, ::testing::Values(PeersCase{"Gloo", by_gloo}),
                         [](const auto& test) { return test.param.name; });

TEST(GlooPipes, NameAGroupThatDoesNotForm) {
  const Rendezvous rendezvous = Rendezvous::open({});
  const auto error = thrown<Error>(
      [&] { connect_by_gloo(rendezvous, {.name = "epoch 7", .number = 0, .size = 2}, kShort); });
  EXPECT_PRED2(
      contains, error.what(),
      "host 0 could not connect to the other 1 of group 'epoch 7' at 127.0.0.1 within 0.3 s");
}

TEST(GlooPipes, RefuseTlsThatSendsPlainText) {
  const Rendezvous rendezvous = Rendezvous::open({});
  setenv("GLOO_DEVICE_TRANSPORT", "TCP_TLS", /*overwrite=*/1);
  const auto error =
      thrown<Error>([&] { connect_by_gloo(rendezvous, {.name = "epoch 1"}, kShort); });
  unsetenv("GLOO_DEVICE_TRANSPORT");
  EXPECT_PRED2(contains, error.what(), "GLOO_DEVICE_TRANSPORT=TCP_TLS");
  EXPECT_EQ(connect_by_gloo(rendezvous, {.name = "epoch 1"}, kShort).size(), 1u);
}

/// The names of meetings that hosts start one after another at the same store.
std::vector<std::string> names_of_meeting(const Rendezvous& rendezvous, int size) {
  std::vector<std::future<std::string>> coming;
  for (int host = size - 1; host >= 0; --host) {  // host 0 comes last
    coming.push_back(std::async(std::launch::async, [&, host] {
      const Rendezvous joined = Rendezvous::join(rendezvous.endpoint(), kLong);
      Board board(joined, std::nullopt);
      return name_of_meeting(board, host, size, kLong);
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::vector<std::string> names;
  for (auto& each : coming) names.push_back(each.get());
  return names;
}

/// torchrun keeps a store: hosts that start again do not take the name of an earlier start.
TEST(Meeting, HasAnotherNameAtEachStart) {
  const Rendezvous rendezvous = Rendezvous::open({});
  std::set<std::string> seen;
  for (const int size : {3, 3, 2, 4}) {
    const auto names = names_of_meeting(rendezvous, size);
    for (const std::string& name : names) EXPECT_EQ(name, names.front());
    EXPECT_TRUE(seen.insert(names.front()).second);
  }
  const auto too_late = [&](int number) {
    Board board(rendezvous, std::nullopt);
    return thrown<Error>([&] { name_of_meeting(board, number, 2, kShort); });
  };
  EXPECT_PRED2(contains, too_late(0).what(), "host 1 has not arrived at 127.0.0.1:");
  EXPECT_PRED2(contains, too_late(1).what(), "host 0 has not answered host 1 at 127.0.0.1:");
}

TEST(Rendezvous, ListensAtItsEndpointAlone) {
  const Rendezvous rendezvous = Rendezvous::open({});
  const int port = rendezvous.endpoint().port;
  EXPECT_GT(port, 0);
  const Rendezvous joined = Rendezvous::join({"127.0.0.1", port}, kLong);
  joined.store()->set("key", std::vector<std::uint8_t>{1, 2});
  EXPECT_EQ(rendezvous.store()->get("key"), (std::vector<std::uint8_t>{1, 2}));
  // Another address of the same machine.
  const auto error = thrown<Error>([&] { Rendezvous::join({"127.0.0.2", port}, kShort); });
  EXPECT_PRED2(contains, error.what(), "nobody answered at 127.0.0.2:");
}

TEST(Rendezvous, NamesAPortInUseAndAnAddressOfAnotherMachine) {
  const Rendezvous rendezvous = Rendezvous::open({});
  const int port = rendezvous.endpoint().port;
  const auto in_use = thrown<Error>([&] { Rendezvous::open({"127.0.0.1", port}); });
  EXPECT_PRED2(contains, in_use.what(), "Address already in use); choose another address or port");
  const auto elsewhere = thrown<Error>([&] { Rendezvous::open({"192.0.2.1", port}); });
  EXPECT_PRED2(contains, elsewhere.what(), "hosts cannot meet at 192.0.2.1:");
}

}  // namespace
}  // namespace spillway::testing
