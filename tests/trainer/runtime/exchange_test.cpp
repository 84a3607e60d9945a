#include "trainer/runtime/exchange.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "core/peers/framed_peers.h"
#include "scheduler/plan/lower.h"
#include "spillway/ids.h"
#include "tests/support/models/small_model.h"
#include "tests/support/peers/connected_pipes.h"

namespace spillway {
namespace {

using testing::chain;
using testing::profile_of;

constexpr int kHosts = 3;

class Listener final : public PeersListener {
 public:
  void heard(int, std::span<const std::byte>) override {}
  void lost(int, const std::string&) override {}
};

/// Hosts in one process, each with a home that has its number everywhere.
class ExchangeTest : public ::testing::Test {
 protected:
  ExchangeTest() {
    std::vector<testing::Pipes> pipes = testing::in_process_pipes(kHosts);
    const ModelSpec model = chain(2, kHosts * 4096);
    for (int h = 0; h < kHosts; ++h) {
      const JobShape shape{
          .virtual_nodes = 6, .groups = 6, .lane_groups = {2}, .host_groups = {2, 2, 2}, .host = h};
      auto plan = std::make_shared<JobPlan>(lower(model, profile_of(model), shape, {{0, 2}}, true));
      memory_.emplace_back(plan->layout.home_bytes, static_cast<std::byte>(h + 1));
      plans_.push_back(std::move(plan));
    }
    for (int h = 0; h < kHosts; ++h) {
      homes_.emplace_back(memory_[at(h)].data());
      peers_.push_back(std::make_unique<FramedPeers>(h, std::move(pipes[at(h)]), listener_));
    }
  }

  HostCall call(int host, int op) const {
    const auto& plan = plans_[at(host)];
    return {.job = JobId(0),
            .plan = plan,
            .program = plan->programs[StepKind{.train = true}.index()].get(),
            .op = op,
            .home = &homes_[at(host)]};
  }
  const std::vector<HostOpSpec>& ops(int host) const { return call(host, 0).program->host_ops; }

  /// Whether it is lost.
  std::future<bool> begin(int host, int op) {
    const auto ended = std::make_shared<std::promise<bool>>();
    exchange(*peers_[at(host)], /*number=*/0, call(host, op),
             [ended](bool is_lost) { ended->set_value(is_lost); });
    return ended->get_future();
  }

  /// Carries out the op on all hosts at once.
  void run(int op) {
    std::vector<std::future<bool>> ends;
    for (int h = 0; h < kHosts; ++h) ends.push_back(begin(h, op));
    for (auto& end : ends) EXPECT_FALSE(end.get());
  }

  Listener listener_;
  std::vector<std::shared_ptr<const JobPlan>> plans_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<Home> homes_;
  std::vector<std::unique_ptr<FramedPeers>> peers_;
};

TEST_F(ExchangeTest, TakesWhatTheOthersSend) {
  int exchanges = 0;
  for (int op = 0; op < static_cast<int>(ops(0).size()); ++op) {
    if (ops(0)[at(op)].kind != HostOpKind::exchange) continue;
    run(op);
    ++exchanges;
    for (int h = 0; h < kHosts; ++h) {
      for (const Transfer& transfer : ops(h)[at(op)].transfers) {
        if (transfer.is_sent) continue;
        const std::byte* const taken = homes_[at(h)].at(transfer.home);
        EXPECT_EQ(*taken, static_cast<std::byte>(transfer.peer + 1));
        EXPECT_EQ(taken[transfer.bytes - 1], static_cast<std::byte>(transfer.peer + 1));
      }
    }
    for (int h = 0; h < kHosts; ++h) {
      std::ranges::fill(memory_[at(h)], static_cast<std::byte>(h + 1));
    }
  }
  EXPECT_EQ(exchanges, 2 * 2 + 1);  // two for each layer, and the losses
}

TEST_F(ExchangeTest, EndsWhenAHostIsLost) {
  int op = 0;
  while (ops(0)[at(op)].kind != HostOpKind::exchange) ++op;
  auto first = begin(0, op), second = begin(1, op);
  peers_[2]->abandon();  // it has not begun
  peers_[0]->abandon();
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
  EXPECT_TRUE(begin(1, op).get());  // at once
}

TEST_F(ExchangeTest, EndsWhenAnotherEpochBegins) {
  int op = 0;
  while (ops(0)[at(op)].kind != HostOpKind::exchange) ++op;
  auto first = begin(0, op);
  peers_[0]->begin_epoch(1);
  EXPECT_TRUE(first.get());
  for (int h : {1, 2}) peers_[at(h)]->begin_epoch(1);
  run(op);
}

TEST_F(ExchangeTest, IsLostWithoutOtherHosts) {
  class Runner final : public OpRunner {
   public:
    void admit(JobId, const Home&) override {}
    Keep run_op(const OpCall&) override { return {}; }
    void run_host_op(const HostCall&) override {}
    void warm(Device&) override {}
  };
  bool is_lost = false;
  Runner().exchange(call(0, 0), [&](bool lost) { is_lost = lost; });
  EXPECT_TRUE(is_lost);
}

}  // namespace
}  // namespace spillway
