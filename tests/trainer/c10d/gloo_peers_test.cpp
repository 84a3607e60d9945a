#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdlib>
#include <functional>
#include <future>
#include <numeric>
#include <set>
#include <thread>

#include "core/peers/connect.h"
#include "core/peers/framed_peers.h"
#include "spillway/error.h"
#include "tests/conformance/peers_conformance.h"
#include "tests/support/check/contains.h"
#include "tests/support/check/thrown.h"
#include "trainer/c10d/gloo_pipes.h"
#include "trainer/hosts/meeting.h"

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
      const int number = static_cast<int>(h), size = static_cast<int>(listeners.size());
      const GlooConnector connector(joined, {"epoch 1", number});
      auto connected =
          connect_all(number, size, [&](int peer) { return connector.connect(peer, kLong); });
      return std::make_unique<FramedPeers>(number, std::move(connected.pipes), *listeners[h]);
    }));
  }
  std::vector<std::unique_ptr<Peers>> peers;
  for (auto& each : connecting) peers.push_back(each.get());
  return peers;
}

INSTANTIATE_TEST_SUITE_P(Gloo, PeersConformance, ::testing::Values(PeersCase{"Gloo", by_gloo}),
                         [](const auto& test) { return test.param.name; });

/// Host 1 does not come.
TEST(GlooPipes, ConnectHostsBesideOneThatIsLost) {
  const Rendezvous rendezvous = Rendezvous::open({});
  const auto connected = [&](int number) {
    const Rendezvous joined = Rendezvous::join(rendezvous.endpoint(), kLong);
    const GlooConnector connector(joined, {"epoch 7", number});
    return connect_all(
        number, 3, [&](int peer) { return connector.connect(peer, peer == 1 ? kShort : kLong); });
  };
  auto other = std::async(std::launch::async, connected, 2);
  const Connections here = connected(0), there = other.get();
  ASSERT_EQ(here.failures.size(), 1u);
  EXPECT_PRED2(contains, here.failures.at(1),
               "host 0 could not connect to host 1 of group 'epoch 7' at 127.0.0.1 within 0.3 s");
  EXPECT_FALSE(here.pipes[1]);
  const std::array sent{std::byte{7}};
  std::array<std::byte, 1> read{};
  auto reading = std::async(std::launch::async, [&] { there.pipes[0]->read(read); });
  here.pipes[2]->write(sent);
  reading.get();
  EXPECT_EQ(read, sent);
}

TEST(GlooPipes, RefuseTlsThatSendsPlainText) {
  const Rendezvous rendezvous = Rendezvous::open({});
  setenv("GLOO_DEVICE_TRANSPORT", "TCP_TLS", /*overwrite=*/1);
  const auto error = thrown<Error>([&] { GlooConnector(rendezvous, {"epoch 1"}); });
  unsetenv("GLOO_DEVICE_TRANSPORT");
  EXPECT_PRED2(contains, error.what(), "GLOO_DEVICE_TRANSPORT=TCP_TLS");
  GlooConnector(rendezvous, {"epoch 1"});
}

/// What each of these hosts of `size` gets. Host 0 comes last.
std::vector<Meeting> meetings_of(const Rendezvous& rendezvous, std::vector<int> hosts, int size,
                                 int least, std::chrono::milliseconds limit = kLong) {
  std::ranges::sort(hosts, std::greater());
  std::vector<std::future<Meeting>> coming;
  for (int host : hosts) {
    coming.push_back(std::async(std::launch::async, [&, host] {
      const Rendezvous joined = Rendezvous::join(rendezvous.endpoint(), kLong);
      Board board(joined, std::nullopt);
      return meet(board, {.size = size, .number = host}, least, {limit, limit});
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::vector<Meeting> meetings;
  for (auto& each : coming) meetings.push_back(each.get());
  return meetings;
}

/// torchrun keeps a store: hosts that start again do not take the name of an earlier start.
TEST(Meeting, HasAnotherNameAtEachStart) {
  const Rendezvous rendezvous = Rendezvous::open({});
  std::set<std::string> seen;
  for (const int size : {3, 3, 2, 4}) {
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    const auto meetings = meetings_of(rendezvous, all, size, size);
    for (const Meeting& each : meetings) {
      EXPECT_EQ(each.name, meetings.front().name);
      EXPECT_EQ(each.hosts, all);
    }
    EXPECT_TRUE(seen.insert(meetings.front().name).second);
  }
  const auto too_late = [&](int number) {
    Board board(rendezvous, std::nullopt);
    return thrown<Error>([&] { meet(board, {.size = 2, .number = number}, 2, {kShort, kShort}); });
  };
  EXPECT_PRED2(contains, too_late(0).what(), "host 1 has not arrived at 127.0.0.1:");
  EXPECT_PRED2(contains, too_late(1).what(), "host 0 has not answered host 1 at 127.0.0.1:");
}

TEST(Meeting, BeginsWithoutHostsThatDoNotCome) {
  const Rendezvous rendezvous = Rendezvous::open({});
  for (const Meeting& each : meetings_of(rendezvous, {0, 1, 3}, 4, 2, std::chrono::seconds(5))) {
    EXPECT_EQ(each.hosts, (std::vector<int>{0, 1, 3}));
  }
  Board board(rendezvous, std::nullopt);
  const auto error = thrown<Error>([&] { meet(board, {.size = 4}, 2, {kShort, kShort}); });
  EXPECT_PRED2(contains, error.what(), "host 1 and host 2 and host 3 has not arrived");
}

TEST(Meeting, WaitsForAHostWithTheSameBackend) {
  const Rendezvous rendezvous = Rendezvous::open({});
  const auto come = [&](int number, BackendKind backend) {
    const Rendezvous joined = Rendezvous::join(rendezvous.endpoint(), kLong);
    Board board(joined, std::nullopt);
    return meet(board, {.size = 2, .number = number, .backend = backend}, 2, {kLong, kLong});
  };
  auto first = std::async(std::launch::async, [&] { return come(0, BackendKind::nccl); });
  const auto refused = thrown<ConfigError>([&] { come(1, BackendKind::gloo); });
  EXPECT_PRED2(contains, refused.what(), "is gloo, and host 0 has nccl; write the same");
  const Meeting second = come(1, BackendKind::nccl);
  EXPECT_EQ(first.get().name, second.name);
}

/// Host 0 is played by hand: its keys as other versions would write them.
TEST(Meeting, NamesTheVersionOfHost0) {
  const Rendezvous rendezvous = Rendezvous::open({});
  Board board(rendezvous, std::nullopt);
  board.write("spillway/meeting", "m");
  auto answered = std::async(std::launch::async, [&] {
    const std::string here = board.wait_for("spillway/m/here/1", [] {});
    board.write("spillway/m/answer/1", here + " gloo 0.0.1");
  });
  const auto refused = thrown<Error>([&] {
    meet(board, {.size = 2, .number = 1}, 2, {kLong, kLong});
  });
  EXPECT_PRED2(contains, refused.what(), "and host 0 has 0.0.1; install the same version");
}

/// It accepts connections and never answers.
TEST(Rendezvous, DoesNotWaitForASilentStore) {
  boost::asio::io_context context;
  const boost::asio::ip::tcp::acceptor silent(context,
                                              {boost::asio::ip::address_v4::loopback(), 0});
  const auto begin = std::chrono::steady_clock::now();
  const auto error = thrown<HostLost>([&] {
    Rendezvous::join({"127.0.0.1", silent.local_endpoint().port()}, kShort);
  });
  EXPECT_PRED2(contains, error.what(), "within 0.3 s (no answer within 0.");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong);
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
