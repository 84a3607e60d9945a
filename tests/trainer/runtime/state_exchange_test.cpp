#include "trainer/runtime/state_exchange.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/peers/framed_peers.h"
#include "scheduler/plan/lower.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "tests/support/models/small_model.h"
#include "tests/support/peers/connected_pipes.h"

namespace spillway {
namespace {

using testing::bf16_chain;
using testing::profile_of;

constexpr int kSharing = 3;  // hosts

/// Masters and moments have their own values, which no host changes.
float value_of(int param, int plane, std::int64_t element) {
  return static_cast<float>(element) + 0.25f * static_cast<float>(plane) +
         1e6f * static_cast<float>(param);
}

/// Hosts in one process that shard the state of a job with several segments for each. Its
/// layers compute in bf16, so each host has masters of its own, too.
class StateExchangeTest : public ::testing::Test {
 protected:
  class Listener final : public PeersListener {
   public:
    void heard(int, std::span<const std::byte>) override {}
    void lost(int, const std::string&) override {}
  };

  explicit StateExchangeTest(int num_hosts = kSharing, bool shadows_state = false) {
    std::vector<testing::Pipes> pipes = testing::in_process_pipes(at(num_hosts));
    const ModelSpec model = bf16_chain(2, kSharing * kStateSegment + 5000);
    for (int h = 0; h < num_hosts; ++h) {
      const JobShape shape{.virtual_nodes = num_hosts,
                           .groups = num_hosts,
                           .lane_groups = {1},
                           .host_groups = std::vector<int>(at(num_hosts), 1),
                           .host = h,
                           .shards_state = true,
                           .shadows_state = shadows_state};
      plans_.push_back(
          std::make_shared<JobPlan>(lower(model, profile_of(model), shape, {{0, 2}}, true)));
      memory_.emplace_back(layout(h).home_bytes);
      homes_.emplace_back(memory_[at(h)].data());
      peers_.push_back(std::make_unique<FramedPeers>(h, std::move(pipes[at(h)]), listener_));
      write_state(h);
    }
    for (int h = 1; h < num_hosts; ++h) {
      senders_.push_back(std::make_unique<StateSender>(*peers_[at(h)], 7, plans_[at(h)]));
    }
    remote_ = std::make_unique<RemoteState>(*peers_[0], 7, plans_[0]);
  }

  const Layout& layout(int host) const { return plans_[at(host)]->layout; }

  void write_state(int host) {
    for (int p = 0; p < 2; ++p) {
      const ElementRange kept = layout(host).params[at(p)].kept;
      for (int plane : planes(SentState::all)) {
        for (std::int64_t e = kept.begin; e < kept.end; ++e) {
          state(host, p, plane)[e - kept.begin] = value_of(p, plane, e);
        }
      }
    }
  }

  static std::vector<int> planes(SentState what) {
    return what == SentState::all ? std::vector{kMasters, 0, 1} : std::vector{kMasters};
  }
  /// What a host has of a parameter.
  float* state(int host, int param, int plane) const {
    const Layout& own = layout(host);
    const Bytes home = plane == kMasters ? own.params[at(param)].home : own.moment(param, plane);
    return reinterpret_cast<float*>(homes_[at(host)].at(home));
  }

  /// Until all others are ready, but for those that are lost.
  void begin(SentState what = SentState::all) {
    std::promise<void> ready;
    remote_->begin(what, [&] { ready.set_value(); });
    for (std::size_t i = 0; i < senders_.size(); ++i) {
      if (lost_.contains(static_cast<int>(i) + 1)) continue;
      senders_[i]->prepare();
      senders_[i]->begin(
          what, homes_[i + 1], [this](std::size_t param) { note_sent(param); },
          [this](bool is_lost) {
            num_lost_ += is_lost ? 1 : 0;
            ++num_ended_;
          });
    }
    ready.get_future().get();
  }

  void note_sent(std::size_t param) {
    const MutexLock lock(mutex_);
    sent_.insert(param);
  }

  /// Reads all that host 0 lacks, in steps of `size` elements. Returns how many differ.
  std::int64_t read(std::int64_t size, SentState what = SentState::all) {
    std::int64_t wrong = 0;
    std::vector<float> values(static_cast<std::size_t>(size));
    for (int p = 0; p < 2; ++p) {
      const ElementRange kept = layout(0).params[at(p)].kept;
      const std::int64_t all = layout(0).params[at(p)].parts.back().elements.end;
      for (int plane : planes(what)) {
        for (const auto& [first, last] :
             {ElementRange{0, kept.begin}, ElementRange{kept.end, all}}) {
          for (std::int64_t e = first; e < last; e += size) {
            const std::int64_t end = std::min(e + size, last);
            remote_->read(p, plane, {e, end}, reinterpret_cast<std::byte*>(values.data()));
            for (std::int64_t i = e; i < end; ++i) {
              wrong += values[static_cast<std::size_t>(i - e)] != value_of(p, plane, i);
            }
          }
        }
      }
    }
    return wrong;
  }

  void wait() {
    for (const auto& sender : senders_) sender->wait();
  }

  Listener listener_;
  std::vector<std::shared_ptr<const JobPlan>> plans_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<Home> homes_;
  std::vector<std::unique_ptr<FramedPeers>> peers_;
  std::vector<std::unique_ptr<StateSender>> senders_;
  std::unique_ptr<RemoteState> remote_;
  Mutex mutex_;
  std::multiset<std::size_t> sent_ SPILLWAY_GUARDED_BY(mutex_);
  std::atomic<int> num_ended_ = 0, num_lost_ = 0;
  std::set<int> lost_;
};

TEST_F(StateExchangeTest, ReadsWhatOthersHave) {
  for (std::int64_t size : {std::int64_t{100'001}, kStateSegment, 2 * kStateSegment + 3}) {
    begin();
    EXPECT_EQ(read(size), 0) << size;
    remote_->end();
    wait();
  }
  EXPECT_EQ(num_ended_, 3 * (kSharing - 1));
  EXPECT_EQ(num_lost_, 0);
  const MutexLock lock(mutex_);
  EXPECT_EQ(sent_.count(0) + sent_.count(1), 3u * (kSharing - 1) * 2);
}

/// The control.
TEST_F(StateExchangeTest, NoticesAnotherValue) {
  const ElementRange own = layout(1).params[0].own;
  ASSERT_GT(own.size(), kStateSegment);
  for (int plane : planes(SentState::all)) state(1, 0, plane)[own.size() - 1] += 1;
  begin();
  EXPECT_EQ(read(kStateSegment), 3);
  remote_->end();
  wait();
}

TEST_F(StateExchangeTest, ReadsMastersAlone) {
  begin();
  remote_->end();
  wait();
  begin(SentState::masters);
  EXPECT_EQ(read(100'001, SentState::masters), 0);
  EXPECT_FALSE(remote_->has_failed());
  remote_->end();
  wait();
}

TEST_F(StateExchangeTest, TakesWhatWasNotRead) {
  begin();
  std::vector<float> values(10);
  const auto& parts = layout(0).params[0].parts;
  const auto other = std::ranges::find_if(parts, [](const HostPart& p) { return p.host != 0; });
  const std::int64_t first = other->elements.begin;
  remote_->read(0, 0, {first, first + 10}, reinterpret_cast<std::byte*>(values.data()));
  remote_->end();
  wait();  // else for ever
  begin();
  EXPECT_EQ(read(kStateSegment), 0) << "the next checkpoint";
  remote_->end();
  wait();
}

TEST_F(StateExchangeTest, EndsWhenAHostIsLost) {
  begin();
  peers_[2]->abandon();
  EXPECT_THROW(read(kStateSegment), Error);
  EXPECT_TRUE(remote_->has_failed());
  remote_->end();
  wait();
}

TEST_F(StateExchangeTest, EndsWhenAnotherEpochBegins) {
  begin();
  remote_->drop();
  for (const auto& sender : senders_) sender->drop();
  for (const auto& peers : peers_) peers->begin_epoch(1);
  EXPECT_THROW(read(kStateSegment), Error);
  remote_->end();
  wait();
  // A host whose state is ready only now sends nothing, which would not be taken.
  senders_[0]->begin(
      SentState::all, homes_[1], [](std::size_t) {}, [](bool is_lost) { EXPECT_TRUE(is_lost); });
  wait();
  begin();
  EXPECT_EQ(read(kStateSegment), 0);
  remote_->end();
  wait();
}

TEST_F(StateExchangeTest, IsReadyIfAHostIsLostBefore) {
  peers_[1]->abandon();
  std::promise<void> ready;
  remote_->begin(SentState::all, [&] { ready.set_value(); });
  peers_[2]->abandon();
  ready.get_future().get();
  EXPECT_THROW(read(kStateSegment), Error);
  remote_->end();
}

TEST_F(StateExchangeTest, DropEndsAllWaiting) {
  std::promise<void> ready;
  remote_->begin(SentState::all, [&] { ready.set_value(); });  // nobody sends
  std::thread drops([this] { remote_->drop(); });
  ready.get_future().get();
  EXPECT_THROW(read(kStateSegment), Error);
  remote_->end();
  drops.join();
}

/// Four hosts with shadows: each has two of four parts in the mean.
class ShadowedExchangeTest : public StateExchangeTest {
 protected:
  ShadowedExchangeTest() : StateExchangeTest(/*num_hosts=*/4, /*shadows_state=*/true) {}

  StateRoute lose(std::set<int> lost) {
    const StateRoute route{.reader = 0, .gone = lost, .is_rescue = true};
    for (const auto& sender : senders_) sender->take_route(route);
    remote_->take_route(route);
    lost_ = std::move(lost);
    return route;
  }
};

TEST_F(ShadowedExchangeTest, ReadsWhatOthersHave) {
  begin();
  EXPECT_EQ(read(100'001), 0);
  EXPECT_FALSE(remote_->has_failed());
  remote_->end();
  wait();
}

TEST_F(ShadowedExchangeTest, ReadsFromShadowsWhatALostHostHad) {
  int num_reached = 0;
  for (const std::set<int>& lost :
       std::vector<std::set<int>>{{1}, {2}, {3}, {1, 2}, {1, 3}, {2, 3}}) {
    if (!lose(lost).reaches_all(layout(0))) continue;
    ++num_reached;
    // The control: lost hosts have other values, which nobody reads.
    for (int host : lost) {
      for (int p = 0; p < 2; ++p) {
        for (int plane : planes(SentState::all)) *state(host, p, plane) = -1;
      }
    }
    begin();
    EXPECT_EQ(read(100'001), 0);
    remote_->end();
    wait();
    for (int host : lost) write_state(host);
  }
  EXPECT_GT(num_reached, 3) << "one host stands in for two";
}

TEST_F(ShadowedExchangeTest, KnowsThatAPartIsGone) {
  EXPECT_TRUE(lose({}).reaches_all(layout(0)));
  EXPECT_FALSE(lose({1, 2, 3}).reaches_all(layout(0)));
}

TEST_F(ShadowedExchangeTest, NumbersOfAStepReachAnotherHost) {
  std::vector<std::byte> sent(1000);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i);
  std::promise<std::vector<std::byte>> taken;
  take_numbers(*peers_[2], 7, 1, sent.size(),
               [&](std::vector<std::byte> numbers) { taken.set_value(std::move(numbers)); });
  send_numbers(*peers_[1], 7, 2, sent);
  EXPECT_EQ(taken.get_future().get(), sent);
}

}  // namespace
}  // namespace spillway
