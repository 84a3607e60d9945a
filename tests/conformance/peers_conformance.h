#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/peers/peers.h"
#include "tests/support/random/from_environment.h"

/// Contract tests of Peers; each implementation instantiates them in its own file:
///   INSTANTIATE_TEST_SUITE_P(Gloo, PeersConformance, testing::Values(PeersCase{...}), ...);
namespace spillway::testing {

struct PeersCase {
  std::string name;
  /// All hosts of an epoch, in this process. The listeners outlive them.
  std::function<std::vector<std::unique_ptr<Peers>>(std::span<PeersListener* const>)> make;
  /// Why it cannot be tested here; empty: it can.
  std::function<std::string()> why_not = [] { return ""; };
  friend void PrintTo(const PeersCase& test, std::ostream* out) { *out << test.name; }
};

using PeerBytes = std::vector<std::byte>;

/// Bytes that differ for each seed and length.
inline PeerBytes peer_bytes(std::size_t length, std::uint64_t seed) {
  PeerBytes bytes(length);
  std::mt19937_64 random(seed * 31 + length);
  for (std::size_t i = 0; i < length; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), length - i));
  }
  return bytes;
}

/// What a host was told, and how transfers ended.
class Told final : public PeersListener {
 public:
  void heard(int from, std::span<const std::byte> message) override {
    note([&]() SPILLWAY_REQUIRES(mutex_) {
      messages_[from].emplace_back(message.begin(), message.end());
    });
  }
  void lost(int peer, const std::string& why) override {
    note([&]() SPILLWAY_REQUIRES(mutex_) {
      lost_.push_back(peer);
      reasons_.push_back(why);
    });
  }
  /// A callback that notes how the transfer `name` ended.
  Peers::Ended ended(std::uint64_t name) {
    return [this, name](Peers::Outcome outcome) {
      note([&]() SPILLWAY_REQUIRES(mutex_) { ends_[name].push_back(outcome); });
    };
  }

  /// Waits until the transfer has ended.
  Peers::Outcome end_of(std::uint64_t name) {
    const MutexLock lock(mutex_);
    changed_.wait(mutex_, [&]() SPILLWAY_REQUIRES(mutex_) { return ends_.contains(name); });
    return ends_.at(name).front();
  }
  void wait_for_loss_of(int peer) {
    const MutexLock lock(mutex_);
    changed_.wait(mutex_,
                  [&]() SPILLWAY_REQUIRES(mutex_) { return std::ranges::count(lost_, peer) > 0; });
  }
  std::vector<PeerBytes> wait_for_messages(int from, std::size_t count) {
    const MutexLock lock(mutex_);
    changed_.wait(mutex_,
                  [&]() SPILLWAY_REQUIRES(mutex_) { return messages_[from].size() >= count; });
    return messages_[from];
  }
  std::vector<int> losses() {
    const MutexLock lock(mutex_);
    return lost_;
  }
  /// Of these losses.
  std::vector<std::string> reasons() {
    const MutexLock lock(mutex_);
    return reasons_;
  }
  std::map<std::uint64_t, std::vector<Peers::Outcome>> ends() {
    const MutexLock lock(mutex_);
    return ends_;
  }

 private:
  template <typename Change>
  void note(const Change& change) {
    const MutexLock lock(mutex_);
    change();
    changed_.notify_all();
  }
  Mutex mutex_;
  CondVar changed_;
  std::map<int, std::vector<PeerBytes>> messages_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<int> lost_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<std::string> reasons_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::vector<Peers::Outcome>> ends_ SPILLWAY_GUARDED_BY(mutex_);
};

class PeersConformance : public ::testing::TestWithParam<PeersCase> {
 protected:
  void SetUp() override {
    if (const std::string why = GetParam().why_not(); !why.empty()) GTEST_SKIP() << why;
  }
  void make(int hosts) {
    std::vector<PeersListener*> listeners;
    for (int h = 0; h < hosts; ++h) {
      listeners.push_back(told_.emplace_back(std::make_unique<Told>()).get());
    }
    hosts_ = GetParam().make(listeners);
  }
  Peers& host(int number) { return *hosts_[static_cast<std::size_t>(number)]; }
  Told& told(int number) { return *told_[static_cast<std::size_t>(number)]; }

  std::vector<std::unique_ptr<Told>> told_;
  std::vector<std::unique_ptr<Peers>> hosts_;  // destroyed first
};

using enum Peers::Outcome;

TEST_P(PeersConformance, KnowTheirNumbers) {
  make(3);
  for (int h = 0; h < 3; ++h) {
    EXPECT_EQ(host(h).number(), h);
    EXPECT_EQ(host(h).size(), 3);
  }
}

TEST_P(PeersConformance, CarryBytesOfAnyLengthBothWays) {
  make(3);
  const std::vector<std::size_t> lengths{0, 1, 4096, 100'000, (1 << 20) + 1};
  std::vector<PeerBytes> sent, taken;
  for (const std::size_t length : lengths) {
    for (int way = 0; way < 6; ++way) {
      sent.push_back(peer_bytes(length, static_cast<std::uint64_t>(way)));
      taken.emplace_back(length);
    }
  }
  const std::vector<std::pair<int, int>> ways{{0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 2}, {2, 1}};
  for (std::size_t t = 0; t < sent.size(); ++t) {
    const auto [from, to] = ways[t % 6];
    EXPECT_TRUE(host(to).take(from, t, taken[t], told(to).ended(t)));
    EXPECT_TRUE(host(from).send(to, t, sent[t], told(from).ended(t)));
  }
  for (std::size_t t = 0; t < sent.size(); ++t) {
    const auto [from, to] = ways[t % 6];
    EXPECT_EQ(told(from).end_of(t), done);
    EXPECT_EQ(told(to).end_of(t), done);
    EXPECT_EQ(taken[t], sent[t]) << t;
  }
}

TEST_P(PeersConformance, KnowATransferByItsTag) {
  make(2);
  std::vector<PeerBytes> sent, taken(20, PeerBytes(1000));
  for (std::uint64_t t = 0; t < 20; ++t) sent.push_back(peer_bytes(1000, t));
  for (std::uint64_t t = 20; t-- > 0;) host(1).take(0, t, taken[t], told(1).ended(t));
  for (std::uint64_t t = 0; t < 20; ++t) host(0).send(1, t, sent[t], told(0).ended(t));
  for (std::uint64_t t = 0; t < 20; ++t) EXPECT_EQ(told(1).end_of(t), done);
  EXPECT_EQ(taken, sent);
}

TEST_P(PeersConformance, LetOthersPassATransferWhoseTakeComesLate) {
  make(2);
  const PeerBytes large = peer_bytes(5'000'000, 1), small = peer_bytes(10, 2);
  PeerBytes large_taken(large.size()), small_taken(small.size());
  host(0).send(1, 7, large, told(0).ended(7));
  host(0).send(1, 8, small, told(0).ended(8));
  host(0).notify(1, small);
  host(1).take(0, 8, small_taken, told(1).ended(8));
  EXPECT_EQ(told(1).end_of(8), done);
  EXPECT_EQ(small_taken, small);
  EXPECT_EQ(told(1).wait_for_messages(0, 1).front(), small);
  EXPECT_FALSE(told(1).ends().contains(7));
  EXPECT_FALSE(told(0).ends().contains(7));
  host(1).take(0, 7, large_taken, told(1).ended(7));
  EXPECT_EQ(told(1).end_of(7), done);
  EXPECT_EQ(told(0).end_of(7), done);
  EXPECT_EQ(large_taken, large);
}

TEST_P(PeersConformance, DeliverMessagesInOrder) {
  make(2);
  std::vector<PeerBytes> sent;
  for (std::uint64_t m = 0; m < 50; ++m) sent.push_back(peer_bytes(m * m, m));
  for (const PeerBytes& message : sent) EXPECT_TRUE(host(1).notify(0, message));
  EXPECT_EQ(told(0).wait_for_messages(1, sent.size()), sent);
}

TEST_P(PeersConformance, LoseAPeerAndGoOnWithTheOthers) {
  make(3);
  PeerBytes never(100), later(100);
  host(0).take(2, 1, never, told(0).ended(1));
  host(1).take(2, 1, never, told(1).ended(1));
  const PeerBytes large = peer_bytes(10'000'000, 1);
  host(0).send(2, 2, large, told(0).ended(2));  // never taken
  hosts_[2].reset();
  EXPECT_EQ(told(0).end_of(1), lost);
  EXPECT_EQ(told(1).end_of(1), lost);
  EXPECT_EQ(told(0).end_of(2), lost);
  told(0).wait_for_loss_of(2);
  told(1).wait_for_loss_of(2);
  EXPECT_FALSE(host(0).send(2, 3, large, told(0).ended(3)));
  EXPECT_FALSE(host(0).take(2, 3, never, told(0).ended(3)));
  EXPECT_FALSE(host(0).notify(2, large));
  host(1).take(0, 4, later, told(1).ended(4));
  EXPECT_TRUE(host(0).send(1, 4, std::span(large).first(100), told(0).ended(4)));
  EXPECT_EQ(told(1).end_of(4), done);
  EXPECT_EQ(told(0).losses(), std::vector{2});
  EXPECT_FALSE(told(0).ends().contains(3));
}

TEST_P(PeersConformance, EndAllTransfersWhenTheyAreAbandoned) {
  make(3);
  {
    const PeerBytes sent = peer_bytes(10'000'000, 1);
    std::vector<PeerBytes> taken(4, PeerBytes(100));
    host(0).send(1, 0, sent, told(0).ended(0));
    for (std::uint64_t t = 1; t < 4; ++t) host(0).take(2, t, taken[t], told(0).ended(t));
    host(0).abandon();
    const auto ends = told(0).ends();
    ASSERT_EQ(ends.size(), 4u);
    for (const auto& [name, outcomes] : ends) EXPECT_EQ(outcomes, std::vector{lost}) << name;
  }  // nobody reads or writes these bytes any more
  EXPECT_TRUE(told(0).losses().empty()) << "this host did it";
  told(1).wait_for_loss_of(0);
  told(2).wait_for_loss_of(0);
  EXPECT_FALSE(host(0).notify(1, peer_bytes(1, 1)));
}

TEST_P(PeersConformance, EndOpenTransfersWhenAnotherEpochBegins) {
  make(3);
  const PeerBytes sent = peer_bytes(1000, 1), later = peer_bytes(1000, 2);
  PeerBytes taken(1000), from_third(1000);
  host(0).send(1, 1, sent, told(0).ended(1));
  host(0).take(1, 2, taken, told(0).ended(2));
  host(0).begin_epoch(1);
  EXPECT_EQ(told(0).end_of(1), lost);
  EXPECT_EQ(told(0).end_of(2), lost);
  host(1).take(0, 1, taken, told(1).ended(1));  // of the epoch before
  host(1).take(2, 3, from_third, told(1).ended(3));
  host(0).send(1, 1, later, told(0).ended(11));  // waits for host 1
  host(2).send(1, 3, later, told(2).ended(3));   // both are still there
  EXPECT_EQ(told(1).end_of(3), done);
  EXPECT_FALSE(told(0).ends().contains(11));
  host(1).begin_epoch(1);
  EXPECT_EQ(told(1).end_of(1), lost);
  host(1).take(0, 1, taken, told(1).ended(11));
  EXPECT_EQ(told(1).end_of(11), done);
  EXPECT_EQ(told(0).end_of(11), done);
  EXPECT_EQ(taken, later);
  for (int h = 0; h < 3; ++h) EXPECT_TRUE(told(h).losses().empty());
}

TEST_P(PeersConformance, EndTransfersWithAPeerThatIsDropped) {
  make(3);
  PeerBytes never(100), taken(100);
  host(0).take(1, 1, never, told(0).ended(1));
  host(0).drop(1);
  EXPECT_EQ(told(0).end_of(1), lost);
  EXPECT_FALSE(host(0).notify(1, never));
  host(0).take(2, 2, taken, told(0).ended(2));
  const PeerBytes sent = peer_bytes(100, 1);
  host(2).send(0, 2, sent, told(2).ended(2));
  EXPECT_EQ(told(0).end_of(2), done);
  EXPECT_TRUE(told(0).losses().empty()) << "this host did it";
}

TEST_P(PeersConformance, LoseAPeerThatSendsAnotherLength) {
  make(2);
  const PeerBytes sent = peer_bytes(99, 1);
  PeerBytes taken(100);
  host(1).take(0, 5, taken, told(1).ended(5));
  host(0).send(1, 5, sent, told(0).ended(5));
  EXPECT_EQ(told(0).end_of(5), lost);
  told(0).wait_for_loss_of(1);
  host(0).abandon();
  EXPECT_EQ(told(1).end_of(5), lost);
  told(1).wait_for_loss_of(0);
}

/// Hosts begin epochs at any moment, in which they send other bytes with the same tags. A take that
/// is done has the bytes of its epoch, and in the last one all are done.
TEST_P(PeersConformance, NeverMixEpochs) {
  constexpr std::uint64_t kTags = 8, kEpochs = 6;
  for (std::uint64_t seed = 0; seed < campaign_size(20); ++seed) {
    told_.clear();
    make(2);
    const auto bytes_of = [&](std::uint64_t epoch, std::uint64_t tag, int from) {
      const std::size_t length = 1 + (seed * 7919 + tag * 104'729) % 100'000;
      return peer_bytes(length, epoch * 1000 + tag * 10 + static_cast<std::uint64_t>(from));
    };
    std::vector<std::vector<PeerBytes>> taken(2);
    const auto train = [&](int self) {
      std::mt19937_64 random(seed * 2 + static_cast<std::uint64_t>(self));
      const int other = 1 - self;
      std::vector<PeerBytes> sent, &own = taken[static_cast<std::size_t>(self)];
      for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
        if (epoch > 0) host(self).begin_epoch(epoch);
        for (std::uint64_t t = 0; t < kTags && epoch > 0; ++t) {  // before their bytes go away
          const std::uint64_t before = (epoch - 1) * 100 + 2 * t;
          told(self).end_of(before + 1);
          if (told(self).end_of(before) == done) {
            EXPECT_EQ(own[t], bytes_of(epoch - 1, t, other)) << seed;
          }
        }
        sent.clear();
        own.clear();
        for (std::uint64_t t = 0; t < kTags; ++t) {
          sent.push_back(bytes_of(epoch, t, self));
          own.emplace_back(sent.back().size());
        }
        for (std::uint64_t t = 0; t < kTags; ++t) {
          host(self).take(other, t, own[t], told(self).ended(epoch * 100 + 2 * t));
          host(self).send(other, t, sent[t], told(self).ended(epoch * 100 + 2 * t + 1));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      }
      for (std::uint64_t t = 0; t < kTags; ++t) {
        EXPECT_EQ(told(self).end_of((kEpochs - 1) * 100 + 2 * t), done) << seed;
        EXPECT_EQ(told(self).end_of((kEpochs - 1) * 100 + 2 * t + 1), done) << seed;
        EXPECT_EQ(own[t], bytes_of(kEpochs - 1, t, other)) << seed;
      }
    };
    std::thread second([&] { train(1); });
    train(0);
    second.join();
    for (int h = 0; h < 2; ++h) EXPECT_TRUE(told(h).losses().empty()) << seed;
    hosts_.clear();
  }
}

/// Random transfers between random hosts, some of which go away meanwhile: each transfer ends once,
/// and one that is done has its bytes.
TEST_P(PeersConformance, EndEachTransferOnceWhateverHappens) {
  for (std::uint64_t seed = 0; seed < campaign_size(10); ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int end) {
      return static_cast<int>(random() % static_cast<unsigned>(end));
    };
    const int count = 2 + below(3);
    told_.clear();
    make(count);
    struct Transfer {
      int from, to;
      PeerBytes sent, taken;
      bool is_taken = false, is_sent = false;
    };
    std::vector<Transfer> transfers(40);
    for (std::uint64_t t = 0; t < transfers.size(); ++t) {
      Transfer& each = transfers[t];
      each.from = below(count);
      each.to = (each.from + 1 + below(count - 1)) % count;
      each.sent =
          peer_bytes(static_cast<std::size_t>(below(3) == 0 ? below(300'000) : below(50)), t);
      each.taken.resize(each.sent.size());
      each.is_taken = host(each.to).take(each.from, t, each.taken, told(each.to).ended(2 * t));
    }
    const int leaver = below(2) == 0 ? below(count) : -1;
    std::thread leaving;
    for (std::uint64_t t = 0; t < transfers.size(); ++t) {
      Transfer& each = transfers[t];
      each.is_sent = host(each.from).send(each.to, t, each.sent, told(each.from).ended(2 * t + 1));
      if (t == 20 && leaver >= 0) leaving = std::thread([&] { host(leaver).abandon(); });
    }
    if (leaving.joinable()) leaving.join();
    for (std::uint64_t t = 0; t < transfers.size(); ++t) {
      const Transfer& each = transfers[t];
      const bool is_done = each.is_taken && told(each.to).end_of(2 * t) == done;
      if (each.is_sent) told(each.from).end_of(2 * t + 1);
      if (is_done) {
        EXPECT_EQ(each.taken, each.sent) << seed;
      }
      if (each.from != leaver && each.to != leaver) {
        EXPECT_TRUE(is_done) << seed;
      }
    }
    hosts_.clear();
    for (int h = 0; h < count; ++h) {
      for (const auto& [name, outcomes] : told(h).ends()) EXPECT_EQ(outcomes.size(), 1u) << seed;
    }
  }
}

}  // namespace spillway::testing
