#include "scheduler/fleet/fleet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "spillway/ids.h"
#include "tests/support/random/from_environment.h"

namespace spillway {
namespace {

using testing::campaign_size;
using testing::from_environment;

/// All words and agreements of hosts that hear each other at once.
class Hosts {
 public:
  explicit Hosts(int size) {
    for (int h = 0; h < size; ++h) fleets.emplace_back(h, size);
  }
  /// The jobs of the host rest.
  void rest(int host, const RestingJobs& jobs) {
    Fleet& fleet = fleets[at(host)];
    fleet.rest(fleet.round(), jobs);
    settle();
  }
  void settle() {
    for (bool moves = true; moves;) {
      moves = false;
      for (int from = 0; from < static_cast<int>(fleets.size()); ++from) {
        const auto word = fleets[at(from)].take_word();
        moves |= word.has_value();
        for (int to = 0; word && to < static_cast<int>(fleets.size()); ++to) {
          if (to != from && !gone.contains(to)) fleets[at(to)].hear(from, *word);
        }
      }
    }
    for (int h = 0; h < static_cast<int>(fleets.size()); ++h) {
      if (auto agreement = fleets[at(h)].take_agreement()) agreed[h] = std::move(agreement);
    }
  }

  std::deque<Fleet> fleets;
  std::set<int> gone;
  std::map<int, std::optional<Agreement>> agreed;
};

TEST(Fleet, GoesOnWithTheHostsThatAreLeft) {
  Hosts hosts(3);
  hosts.gone = {2};
  for (int h : {0, 1}) {
    EXPECT_TRUE(hosts.fleets[at(h)].has_agreed());
    hosts.fleets[at(h)].lose(2);
    EXPECT_FALSE(hosts.fleets[at(h)].has_agreed());
    EXPECT_TRUE(hosts.fleets[at(h)].take_call_to_rest());
    EXPECT_FALSE(hosts.fleets[at(h)].take_call_to_rest()) << "once";
  }
  hosts.rest(0, {.begun = 2, .steps = {{0, 7}, {1, 3}}});
  EXPECT_TRUE(hosts.agreed.empty()) << "host 1 is still working";
  hosts.rest(1, {.begun = 2, .steps = {{0, 7}, {1, 3}}});
  const Agreement both{
      .round = 1, .hosts = {0, 1}, .computing = {{0, {0, 1}}, {1, {0, 1}}}, .ahead = {}};
  EXPECT_EQ(hosts.agreed[0], both);
  EXPECT_EQ(hosts.agreed[1], both);
}

TEST(Fleet, LetsThoseBehindMakeTheStepAlone) {
  Hosts hosts(3);
  hosts.gone = {1};
  for (int h : {0, 2}) hosts.fleets[at(h)].lose(1);
  hosts.rest(0, {.begun = 1, .steps = {{0, 8}}});
  hosts.rest(2, {.begun = 1, .steps = {{0, 7}}});
  const Agreement alone{.round = 1, .hosts = {0, 2}, .computing = {{0, {2}}}, .ahead = {{0, {0}}}};
  EXPECT_EQ(hosts.agreed[0], alone);
  EXPECT_EQ(hosts.agreed[2], alone);
  hosts.fleets[at(2)].renew();  // it has
  EXPECT_TRUE(hosts.fleets[at(2)].take_call_to_rest());
  hosts.rest(2, {.begun = 1, .steps = {{0, 8}}});
  EXPECT_TRUE(hosts.fleets[at(0)].take_call_to_rest());
  hosts.rest(0, {.begun = 1, .steps = {{0, 8}}});
  EXPECT_EQ(hosts.agreed[0]->computing.at(0), (std::set<int>{0, 2}));
  EXPECT_TRUE(hosts.agreed[0]->ahead.empty());
}

TEST(Fleet, LeavesOutHostsOnWhichAJobHasEnded) {
  Hosts hosts(3);
  hosts.gone = {2};
  for (int h : {0, 1}) hosts.fleets[at(h)].lose(2);
  hosts.rest(0, {.begun = 1, .steps = {{0, 9}}});
  hosts.rest(1, {.begun = 1, .steps = {}});
  EXPECT_EQ(hosts.agreed[0]->computing.at(0), std::set<int>{0});
  EXPECT_TRUE(hosts.agreed[0]->ahead.empty()) << "nobody waits for it";
}

TEST(Fleet, TellsAllThatJobsOfOneMustRestart) {
  for (const bool must_restart : {true, false}) {
    Hosts hosts(2);
    hosts.fleets[0].renew();
    hosts.rest(0, {.begun = 1, .steps = {{0, 9}}});
    hosts.rest(1, {.begun = 1, .steps = {{0, 9}}, .must_restart = must_restart});
    for (int h : {0, 1}) EXPECT_EQ(hosts.agreed[h]->must_restart, must_restart);
  }
}

TEST(Fleet, WaitsForAHostOnWhichAJobHasNotBegun) {
  Hosts hosts(3);
  hosts.gone = {2};
  for (int h : {0, 1}) hosts.fleets[at(h)].lose(2);
  hosts.rest(0, {.begun = 2, .steps = {{0, 9}, {1, 0}}});
  hosts.rest(1, {.begun = 1, .steps = {{0, 9}}});
  EXPECT_TRUE(hosts.agreed.empty());
  hosts.rest(1, {.begun = 2, .steps = {{0, 9}, {1, 0}}});
  EXPECT_EQ(hosts.agreed[1]->computing.at(1), (std::set<int>{0, 1}));
}

TEST(Fleet, BeginsAnotherRoundIfAHostHasBegunMoreMeanwhile) {
  Fleet first(0, 3), second(1, 3);
  for (Fleet* fleet : {&first, &second}) {
    fleet->lose(2);
    fleet->rest(1, {.begun = 1, .steps = {{0, 5}}});
  }
  second.hear(0, *first.take_word());
  const HostWord word = *second.take_word();
  EXPECT_TRUE(second.take_agreement());
  first.rest(1, {.begun = 2, .steps = {{0, 5}, {1, 0}}});  // before it hears the word
  const HostWord again = *first.take_word();
  first.hear(1, word);
  EXPECT_FALSE(first.take_agreement());
  second.hear(0, again);
  EXPECT_FALSE(second.has_agreed());
  EXPECT_EQ(second.round(), 2);
}

TEST(Fleet, IgnoresTheLost) {
  Fleet fleet(0, 3);
  fleet.lose(2);
  fleet.hear(2, {.round = 9, .lost = {1}, .jobs = {}});
  EXPECT_EQ(fleet.round(), 1);
  EXPECT_EQ(fleet.hosts(), (std::set<int>{0, 1}));
}

/// Hosts train jobs over connections that deliver in order, each at its own pace. At any moment
/// jobs begin, hosts die, lose a device or take another one for lost. A loss is noticed after what
/// was sent before. Steps whose open work is dropped are made again. Everything that is left gets
/// done.
class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed) : random_(seed) {
    size_ = between(2, 5);
    num_jobs_ = between(1, 3);
    for (int h = 0; h < size_; ++h) hosts_.emplace_back(h, size_, num_jobs_);
    to_kill_ = between(0, size_ - 1);
    to_drop_ = between(1, 4) == 1 ? 1 : 0;
    to_renew_ = between(0, 2);
  }

  void run() {
    for (int event = 0; event < 100'000; ++event) {
      if (is_over()) return;
      move();
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
    FAIL() << "hosts wait for each other";
  }

  int rounds() const {
    std::int64_t most = 0;
    for (const Host& host : hosts_) most = std::max(most, host.fleet.round());
    return static_cast<int>(most);
  }
  int caught_up = 0;

 private:
  static constexpr std::int64_t kSteps = 6;
  /// The work of a host for a step of a job, or a word, or the end of the connection.
  struct Message {
    enum class Kind { work, word, end } kind = Kind::work;
    std::int64_t round = 0, step = 0;
    int job = 0;
    std::set<int> computing;
    HostWord word;
  };
  struct Job {
    std::int64_t step = 0;
    bool runs = false, is_open = false, is_behind = false;
    std::set<int> computing;
    std::map<std::int64_t, std::set<int>> heard;  // by step, from hosts
  };
  struct Host {
    Host(int number, int size, int num_jobs) : fleet(number, size), jobs(at(num_jobs)) {
      for (Job& job : jobs) {
        for (int h = 0; h < size; ++h) job.computing.insert(h);
      }
    }
    Fleet fleet;
    std::vector<Job> jobs;
    bool is_dead = false, has_to_rest = false;
    int begun = 0;  // jobs
    std::set<int> dropped;
    std::map<int, std::deque<Message>> inbox;    // by sender
    std::vector<std::pair<int, Message>> early;  // of a round that it is not in yet
  };

  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  bool is_over() const {
    return std::ranges::all_of(hosts_, [](const Host& host) {
      return host.is_dead ||
             std::ranges::all_of(host.jobs, [](const Job& job) { return job.step == kSteps; });
    });
  }

  void send(int from, int to, const Message& message) {
    if (!hosts_[at(to)].is_dead && !hosts_[at(from)].is_dead)
      hosts_[at(to)].inbox[from].push_back(message);
  }

  /// Some of the last messages are lost with a host.
  void kill(int host) {
    hosts_[at(host)].is_dead = true;
    for (int to = 0; to < size_; ++to) {
      auto& inbox = hosts_[at(to)].inbox[host];
      const auto lost = between(0, static_cast<int>(inbox.size()));
      inbox.erase(inbox.end() - lost, inbox.end());
      if (!hosts_[at(to)].is_dead) inbox.push_back({.kind = Message::Kind::end});
    }
  }

  void move() {
    const int h = between(0, size_ - 1);
    Host& host = hosts_[at(h)];
    if (host.is_dead) return;
    if (to_kill_ > 0 && between(1, 60) == 1) {
      --to_kill_;
      return kill(h);
    }
    if (host.begun < num_jobs_ && between(1, 10) == 1) return begin_another(h);
    if (to_renew_ > 0 && between(1, 80) == 1) {
      --to_renew_;
      host.fleet.renew();
      return after(h);
    }
    if (to_drop_ > 0 && between(1, 80) == 1) {
      --to_drop_;
      host.fleet.lose((h + 1) % size_);
      return after(h);
    }
    if (host.has_to_rest && between(1, 3) == 1) return rest(h);
    std::vector<int> senders;
    for (const auto& [from, inbox] : host.inbox) {
      if (!inbox.empty()) senders.push_back(from);
    }
    if (senders.empty()) return;
    const int from = senders[at(between(0, static_cast<int>(senders.size()) - 1))];
    const Message message = host.inbox[from].front();
    host.inbox[from].pop_front();
    take(h, from, message);
  }

  void take(int h, int from, const Message& message) {
    Host& host = hosts_[at(h)];
    if (host.fleet.lost().contains(from)) return;  // the connection is dropped
    if (message.kind == Message::Kind::end) host.fleet.lose(from);
    if (message.kind == Message::Kind::word) host.fleet.hear(from, message.word);
    if (message.kind == Message::Kind::work) {
      const bool is_ahead = message.round > host.fleet.round() ||
                            (message.round == host.fleet.round() && !host.fleet.has_agreed());
      if (is_ahead || message.job >= host.begun) {  // nobody takes it yet
        host.early.emplace_back(from, message);
      } else {
        work(h, from, message);
      }
    }
    after(h);
  }

  void work(int h, int from, const Message& message) {
    Host& host = hosts_[at(h)];
    Job& job = host.jobs[at(message.job)];
    if (message.round != host.fleet.round() || !job.runs) return;
    EXPECT_EQ(job.computing, message.computing) << "hosts do not compute the same step together";
    EXPECT_GE(message.step, job.step);
    EXPECT_LE(message.step, job.step + 1) << "it needs the work of this host";
    job.heard[message.step].insert(from);
    commit_if_whole(h, message.job);
  }

  void commit_if_whole(int h, int j) {
    Job& job = hosts_[at(h)].jobs[at(j)];
    if (!job.is_open || job.heard[job.step] != job.computing) return;
    job.heard.erase(job.step++);
    job.is_open = false;
    if (std::exchange(job.is_behind, false)) {
      ++caught_up;
      hosts_[at(h)].fleet.renew();
      return after(h);
    }
    begin(h, j);
  }

  /// With all hosts, or once the hosts have agreed.
  void begin_another(int h) {
    Host& host = hosts_[at(h)];
    Job& job = host.jobs[at(host.begun++)];
    job.runs = host.fleet.lost().empty() && host.fleet.has_agreed();
    if (job.runs) return begin_all(h);
    host.fleet.renew();
    after(h);
    if (!host.fleet.has_agreed() && !host.has_to_rest) rest(h);
  }

  /// Computes the next step of a job.
  void begin(int h, int j) {
    Host& host = hosts_[at(h)];
    Job& job = host.jobs[at(j)];
    if (!job.runs || job.is_open || host.has_to_rest || job.step == kSteps) return;
    job.is_open = true;
    job.heard[job.step].insert(h);
    for (int to : job.computing) {
      if (to != h) {
        send(h, to,
             {.round = host.fleet.round(),
              .step = job.step,
              .job = j,
              .computing = job.computing,
              .word = {}});
      }
    }
    commit_if_whole(h, j);
  }

  void begin_all(int h) {
    for (int j = 0; j < hosts_[at(h)].begun; ++j) begin(h, j);
    for (const auto& [from, message] : std::exchange(hosts_[at(h)].early, {}))
      take(h, from, message);
  }

  void after(int h) {
    Host& host = hosts_[at(h)];
    if (host.fleet.take_call_to_rest()) host.has_to_rest = true;
    for (int lost : host.fleet.lost()) {  // the connection is dropped
      if (host.dropped.insert(lost).second)
        send(h, lost, {.kind = Message::Kind::end, .computing = {}, .word = {}});
    }
    if (const auto word = host.fleet.take_word()) {
      for (int to : host.fleet.hosts()) {
        if (to != h) send(h, to, {.kind = Message::Kind::word, .computing = {}, .word = *word});
      }
    }
    const auto agreement = host.fleet.take_agreement();
    if (!agreement) return;
    // Whoever agrees on this round with these hosts agrees on the same.
    const auto known = agreed_.try_emplace({agreement->round, agreement->hosts}, *agreement).first;
    EXPECT_EQ(known->second, *agreement);
    for (int j = 0; j < host.begun; ++j) {
      Job& job = host.jobs[at(j)];
      const auto computing = agreement->computing.find(j);
      if (computing == agreement->computing.end() && job.step < kSteps) host.fleet.renew();
      job.runs = computing != agreement->computing.end() && computing->second.contains(h);
      if (job.runs) job.computing = computing->second;
      job.is_behind = job.runs && agreement->ahead.contains(j);
    }
    host.has_to_rest |= host.fleet.take_call_to_rest();
    begin_all(h);
  }

  void rest(int h) {
    Host& host = hosts_[at(h)];
    host.has_to_rest = false;
    RestingJobs resting{.begun = host.begun, .steps = {}};
    for (int j = 0; j < host.begun; ++j) {
      Job& job = host.jobs[at(j)];
      job.runs = job.is_open = job.is_behind = false;
      job.heard.clear();
      if (job.step < kSteps) resting.steps[j] = job.step;
    }
    host.fleet.rest(host.fleet.round(), resting);
    after(h);
  }

  std::mt19937_64 random_;
  int size_ = 0, num_jobs_ = 0, to_kill_ = 0, to_drop_ = 0, to_renew_ = 0;
  std::vector<Host> hosts_;
  std::map<std::pair<std::int64_t, std::set<int>>, Agreement> agreed_;
};

TEST(Fleet, LosesHostsAtAnyMomentAndFinishes) {
  const std::uint64_t only = from_environment("SPILLWAY_PROPERTY_SEED", 0);
  const std::uint64_t last =
      only ? only : from_environment("SPILLWAY_PROPERTY_RUNS", campaign_size(10'000, 1000));
  int rounds = 0, caught_up = 0;
  for (std::uint64_t seed = only ? only : 1; seed <= last; ++seed) {
    SCOPED_TRACE("SPILLWAY_PROPERTY_SEED=" + std::to_string(seed));
    RandomRun run(seed);
    ASSERT_NO_FATAL_FAILURE(run.run());
    if (::testing::Test::HasFailure()) return;
    rounds += run.rounds();
    caught_up += run.caught_up;
  }
  std::cout << last << " runs, " << rounds << " rounds, " << caught_up << " steps made alone\n";
  if (only) return;
  EXPECT_GT(rounds, static_cast<int>(last));
  EXPECT_GT(caught_up, static_cast<int>(last) / 20);
}

}  // namespace
}  // namespace spillway
