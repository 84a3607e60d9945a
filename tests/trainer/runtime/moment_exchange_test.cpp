#include "trainer/runtime/moment_exchange.h"

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

using testing::chain;
using testing::profile_of;

constexpr int kSharing = 3;  // hosts

/// Each moment has its own values, which no host changes.
float value_of(int param, int moment, std::int64_t element) {
  return static_cast<float>(element) + 0.25f * static_cast<float>(moment) +
         1e6f * static_cast<float>(param);
}

/// Three hosts in one process that shard the state of a job with several segments for each.
class MomentExchangeTest : public ::testing::Test {
 protected:
  class Listener final : public PeersListener {
   public:
    void heard(int, std::span<const std::byte>) override {}
    void lost(int, const std::string&) override {}
  };

  MomentExchangeTest() {
    std::vector<testing::Pipes> pipes = testing::in_process_pipes(kSharing);
    const ModelSpec model = chain(2, kSharing * kMomentSegment + 5000);
    for (int h = 0; h < kSharing; ++h) {
      const JobShape shape{.virtual_nodes = 3,
                           .groups = 3,
                           .lane_groups = {1},
                           .host_groups = {1, 1, 1},
                           .host = h,
                           .shards_state = true};
      plans_.push_back(
          std::make_shared<JobPlan>(lower(model, profile_of(model), shape, {{0, 2}}, true)));
      memory_.emplace_back(layout(h).home_bytes);
      homes_.emplace_back(memory_[at(h)].data());
      peers_.push_back(std::make_unique<FramedPeers>(h, std::move(pipes[at(h)]), listener_));
      write_moments(h);
    }
    for (int h = 1; h < kSharing; ++h) {
      senders_.push_back(std::make_unique<MomentSender>(*peers_[at(h)], 7, plans_[at(h)]));
    }
    remote_ = std::make_unique<RemoteMoments>(*peers_[0], 7, plans_[0]);
  }

  const Layout& layout(int host) const { return plans_[at(host)]->layout; }

  void write_moments(int host) {
    for (int p = 0; p < 2; ++p) {
      const ElementRange own = layout(host).params[at(p)].own;
      for (int m = 0; m < 2; ++m) {
        auto* const values =
            reinterpret_cast<float*>(homes_[at(host)].at(layout(host).moment(p, m)));
        for (std::int64_t e = own.begin; e < own.end; ++e) {
          values[e - own.begin] = value_of(p, m, e);
        }
      }
    }
  }

  /// Until all others are ready.
  void begin() {
    std::promise<void> ready;
    remote_->begin([&] { ready.set_value(); });
    for (std::size_t i = 0; i < senders_.size(); ++i) {
      senders_[i]->prepare();
      senders_[i]->begin(
          homes_[i + 1], [this](std::size_t param) { note_sent(param); }, [this] { ++num_ended_; });
    }
    ready.get_future().get();
  }

  void note_sent(std::size_t param) {
    const MutexLock lock(mutex_);
    sent_.insert(param);
  }

  /// Reads all that host 0 lacks, in steps of `size` elements. Returns how many differ.
  std::int64_t read(std::int64_t size) {
    std::int64_t wrong = 0;
    std::vector<float> values(static_cast<std::size_t>(size));
    for (int p = 0; p < 2; ++p) {
      const ElementRange own = layout(0).params[at(p)].own;
      const std::int64_t all = layout(0).params[at(p)].parts.back().elements.end;
      for (int m = 0; m < 2; ++m) {
        for (const auto& [first, last] : {ElementRange{0, own.begin}, ElementRange{own.end, all}}) {
          for (std::int64_t e = first; e < last; e += size) {
            const std::int64_t end = std::min(e + size, last);
            remote_->read(p, m, {e, end}, reinterpret_cast<std::byte*>(values.data()));
            for (std::int64_t i = e; i < end; ++i) {
              wrong += values[static_cast<std::size_t>(i - e)] != value_of(p, m, i);
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
  std::vector<std::unique_ptr<MomentSender>> senders_;
  std::unique_ptr<RemoteMoments> remote_;
  Mutex mutex_;
  std::multiset<std::size_t> sent_ SPILLWAY_GUARDED_BY(mutex_);
  std::atomic<int> num_ended_ = 0;
};

TEST_F(MomentExchangeTest, ReadsWhatOthersHave) {
  for (std::int64_t size : {std::int64_t{100'001}, kMomentSegment, 2 * kMomentSegment + 3}) {
    begin();
    EXPECT_EQ(read(size), 0) << size;
    remote_->end();
    wait();
  }
  EXPECT_EQ(num_ended_, 3 * (kSharing - 1));
  const MutexLock lock(mutex_);
  EXPECT_EQ(sent_.count(0) + sent_.count(1), 3u * (kSharing - 1) * 2);
}

/// The control.
TEST_F(MomentExchangeTest, NoticesAnotherValue) {
  const ElementRange own = layout(1).params[0].own;
  ASSERT_GT(own.size(), kMomentSegment);
  auto* const values = reinterpret_cast<float*>(homes_[1].at(layout(1).moment(0, 1)));
  values[own.size() - 1] += 1;
  begin();
  EXPECT_EQ(read(kMomentSegment), 1);
  remote_->end();
  wait();
}

TEST_F(MomentExchangeTest, TakesWhatWasNotRead) {
  begin();
  std::vector<float> values(10);
  const auto& parts = layout(0).params[0].parts;
  const auto other = std::ranges::find_if(parts, [](const HostPart& p) { return p.host != 0; });
  const std::int64_t first = other->elements.begin;
  remote_->read(0, 0, {first, first + 10}, reinterpret_cast<std::byte*>(values.data()));
  remote_->end();
  wait();  // else for ever
  begin();
  EXPECT_EQ(read(kMomentSegment), 0) << "the next checkpoint";
  remote_->end();
  wait();
}

TEST_F(MomentExchangeTest, EndsWhenAHostIsLost) {
  begin();
  peers_[2]->abandon();
  EXPECT_THROW(read(kMomentSegment), Error);
  remote_->end();
  wait();
}

TEST_F(MomentExchangeTest, EndsWhenAnotherEpochBegins) {
  begin();
  remote_->drop();
  for (const auto& sender : senders_) sender->drop();
  for (const auto& peers : peers_) peers->begin_epoch(1);
  EXPECT_THROW(read(kMomentSegment), Error);
  remote_->end();
  wait();
  // A host whose state is ready only now sends nothing, which would not be taken.
  senders_[0]->begin(
      homes_[1], [](std::size_t) {}, [] {});
  wait();
  begin();
  EXPECT_EQ(read(kMomentSegment), 0);
  remote_->end();
  wait();
}

TEST_F(MomentExchangeTest, IsReadyIfAHostIsLostBefore) {
  peers_[1]->abandon();
  std::promise<void> ready;
  remote_->begin([&] { ready.set_value(); });
  peers_[2]->abandon();
  ready.get_future().get();
  EXPECT_THROW(read(kMomentSegment), Error);
  remote_->end();
}

TEST_F(MomentExchangeTest, DropEndsAllWaiting) {
  std::promise<void> ready;
  remote_->begin([&] { ready.set_value(); });  // nobody sends
  std::thread drops([this] { remote_->drop(); });
  ready.get_future().get();
  EXPECT_THROW(read(kMomentSegment), Error);
  remote_->end();
  drops.join();
}

}  // namespace
}  // namespace spillway
