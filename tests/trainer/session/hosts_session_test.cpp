#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "spillway/error.h"
#include "spillway/session.h"
#include "spillway/weights.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/small_nets.h"
#include "tests/support/run/live_trial.h"
#include "trainer/c10d/rendezvous.h"

/// Sessions of one process as hosts that train together.
namespace spillway::testing {
namespace {

constexpr int kHosts = 3;

/// A port of this machine where nothing listens.
int free_port() { return Rendezvous::open({}).endpoint().port; }

/// All are there: they have met.
class HostSessions {
 public:
  explicit HostSessions(HostStateKind state = HostStateKind::replicated, Bytes memory = kAmple,
                        Bytes network_bytes_per_s = 1'000'000'000) {
    const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
    std::vector<std::future<std::unique_ptr<Session>>> coming;
    for (int h = 0; h < kHosts; ++h) {
      coming.push_back(std::async(std::launch::async, [=] {
        SessionConfig config = session_of(1, memory);
        config.hosts = {.size = kHosts, .number = h, .endpoint = endpoint, .timeout_s = 60};
        config.hosts.network_bytes_per_s = network_bytes_per_s;
        config.hosts.state = state;
        return std::make_unique<Session>(std::move(config));
      }));
    }
    for (auto& each : coming) sessions.push_back(each.get());
  }
  ~HostSessions() {  // they wait for each other
    std::vector<std::jthread> threads;
    for (auto& session : sessions) threads.emplace_back([&] { session.reset(); });
  }
  HostSessions(const HostSessions&) = delete;
  HostSessions& operator=(const HostSessions&) = delete;

  /// On all hosts that are left, at the same time.
  void on_each(const std::function<void(Session&)>& work) {
    std::vector<std::jthread> threads;
    for (const auto& session : sessions) {
      if (session) threads.emplace_back([&] { work(*session); });
    }
  }
  Session& first() { return *sessions.front(); }

  std::vector<std::unique_ptr<Session>> sessions;
};

TEST(HostsSession, TakesInTrialsAfterAHostIsLost) {
  HostSessions hosts;
  TrialConfig longer = trial_of_seed(1);
  longer.train.max_steps *= 8;
  hosts.on_each([&](Session& session) {
    session.start();
    session.submit(longer);
  });
  while (hosts.first().result().trials[0].steps < 5) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  hosts.sessions.back().reset();
  hosts.on_each([&](Session& session) {
    session.submit(trial_of_seed(2));  // while they agree, or later
    session.finish();
  });
  Session alone(session_of(1, kAmple));
  for (const TrialConfig& trial : {longer, trial_of_seed(2)}) alone.submit(trial);
  alone.run();
  for (int t = 0; t < 2; ++t) {
    expect_same_bits(result_of(hosts.first(), JobId(t)), result_of(alone, JobId(t)));
  }
}

/// Its home has no room for the boundaries of the shards into which a larger device would cut it.
TEST(HostsSession, StaysWholeInTheHomeThatItHas) {
  constexpr Bytes kSlow = 100'000;
  const auto shards_with = [](Bytes memory) {
    HostSessions hosts(HostStateKind::replicated, memory, kSlow);
    hosts.on_each([](Session& session) { session.submit(trial_of_seed(1)); });
    return hosts.first().plan(JobId(0)).num_shards;
  };
  ASSERT_GT(shards_with(kAmple), 1) << "the control";
  ASSERT_EQ(shards_with(1_MiB), 1);
  HostSessions hosts(HostStateKind::replicated, 1_MiB, kSlow);
  TrialConfig trial = trial_of_seed(1);
  trial.train.max_data_parallel = 2;
  hosts.on_each([&](Session& session) { session.submit(trial); });
  for (int i = 0; i < 2; ++i) hosts.first().add_device({.memory = kAmple});
  hosts.first().remove_device(0);
  hosts.first().resize(JobId(0), 2);
  hosts.on_each([](Session& session) { session.run(); });
  const RunResult result = hosts.first().result();
  for (const std::size_t device : {1u, 2u}) EXPECT_GT(result.devices[device].ops, 0u);
  EXPECT_EQ(result.trials[0].num_shards, 1);
  expect_same_bits(result.trials[0], alone(1));
}

TEST(HostsSession, TrainsInRunsOneAfterAnother) {
  HostSessions hosts;
  hosts.on_each([&](Session& session) {
    session.submit(trial_of_seed(1));
    session.run();
  });
  Session& leaves = *hosts.sessions.back();
  hosts.on_each([&](Session& session) {
    session.submit(trial_of_seed(2));
    if (&session == &leaves) session.stop();
    session.run();
  });
  expect_same_bits(result_of(hosts.first(), JobId(0)), alone(1));
  expect_same_bits(result_of(hosts.first(), JobId(1)), alone(2));
}

/// Each host has only its part of the masters. The modules initialize all their parameters at once;
/// those of batch norms have averages, which hosts divide, and counts, which they do not.
TEST(HostsSession, GathersTheWeightsOfModulesInBf16) {
  for (const SmallNet& net : small_nets()) {
    TrialConfig trial = net_trial(net);
    trial.train.dtype = FloatType::bf16;
    trial.train.reduction_groups = 4;
    trial.keep_weights = true;
    Session alone(session_of(1, kAmple));
    const JobId id = alone.submit(trial);
    alone.run();
    for (const HostStateKind state : {HostStateKind::sharded, HostStateKind::shadowed}) {
      HostSessions hosts(state);
      hosts.on_each([&](Session& session) {
        session.submit(trial);
        session.run();
      });
      expect_same_bits(result_of(hosts.first(), id), result_of(alone, id));
      const auto expected = alone.weights(id), weights = hosts.first().weights(id);
      ASSERT_EQ(weights.size(), expected.size());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        EXPECT_TRUE(at::equal(weights[i].value, expected[i].value)) << weights[i].name;
      }
      EXPECT_EQ(result_of(*hosts.sessions[1], id).state, TrialState::done);
      const std::string said = thrown<Error>([&] { hosts.sessions[1]->weights(id); }).what();
      EXPECT_NE(said.find("host 0 has the weights of trial"), std::string::npos) << said;
    }
  }
}

}  // namespace
}  // namespace spillway::testing
