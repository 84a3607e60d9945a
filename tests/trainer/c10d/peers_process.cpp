#include <sys/prctl.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "core/peers/connect.h"
#include "core/peers/framed_peers.h"
#include "spillway/error.h"
#include "trainer/c10d/gloo_pipes.h"

/// A host as a process of its own, for peers_processes_test.py.
/// peers_process serve: opens a rendezvous, prints its port and waits for the end of its input.
/// peers_process PORT NUMBER SIZE ROUNDS LIMIT_S: joins it and connects within the limit. In each
/// round every host sends a megabyte to every other. Prints what happens, and "wrong" if it gets
/// wrong bytes. Then waits for the end of its input.
namespace spillway {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

void say(const std::string& line) { std::cout << line << std::endl; }

void wait_for_end_of_input() {
  std::string line;
  while (std::getline(std::cin, line)) {
  }
}

std::vector<std::byte> bytes_of(int host, int round) {
  return std::vector<std::byte>(kBytes, static_cast<std::byte>(16 * host + round % 16));
}

/// Counts the transfers of a round.
class Rounds final : public PeersListener {
 public:
  void heard(int, std::span<const std::byte>) override {}
  void lost(int peer, const std::string&) override { say("lost " + std::to_string(peer)); }
  void begin() {
    const MutexLock lock(mutex_);
    ++open_;
  }
  void end() {
    const MutexLock lock(mutex_);
    if (--open_ == 0) quiet_.notify_all();
  }
  void wait() {
    const MutexLock lock(mutex_);
    quiet_.wait(mutex_, [this]() SPILLWAY_REQUIRES(mutex_) { return open_ == 0; });
  }

 private:
  Mutex mutex_;
  CondVar quiet_;
  int open_ SPILLWAY_GUARDED_BY(mutex_) = 0;
};

/// Whether all bytes of the round that came are right.
bool play_round(Peers& peers, Rounds& rounds, int round) {
  const auto own = bytes_of(peers.number(), round);
  std::vector<std::vector<std::byte>> taken(static_cast<std::size_t>(peers.size()));
  std::vector<char> has_come(taken.size());
  const auto tag = static_cast<std::uint64_t>(round);
  for (int peer = 0; peer < peers.size(); ++peer) {
    if (peer == peers.number()) continue;
    const auto p = static_cast<std::size_t>(peer);
    taken[p].resize(kBytes);
    rounds.begin();
    const bool is_taken = peers.take(peer, tag, taken[p], [&, p](Peers::Outcome outcome) {
      has_come[p] = outcome == Peers::Outcome::done;
      rounds.end();
    });
    if (!is_taken) rounds.end();
    rounds.begin();
    if (!peers.send(peer, tag, own, [&](Peers::Outcome) { rounds.end(); })) rounds.end();
  }
  rounds.wait();
  for (std::size_t p = 0; p < taken.size(); ++p) {
    if (has_come[p] && taken[p] != bytes_of(static_cast<int>(p), round)) return false;
  }
  return true;
}

int serve() {
  const Rendezvous rendezvous = Rendezvous::open({});
  say(std::to_string(rendezvous.endpoint().port));
  wait_for_end_of_input();
  return 0;
}

int join(int port, int number, int size, int num_rounds, std::chrono::seconds limit) {
  const Rendezvous rendezvous = Rendezvous::join({"127.0.0.1", port}, limit);
  say("joined");
  Rounds rounds;
  const GlooConnector connector(rendezvous, {"epoch 1", number});
  auto [pipes, failures] =
      connect_all(number, size, [&](int peer) { return connector.connect(peer, limit); });
  if (!failures.empty()) throw Error(failures.begin()->second);
  FramedPeers peers(number, std::move(pipes), rounds);
  say("connected");
  for (int round = 0; round < num_rounds; ++round) {
    if (!play_round(peers, rounds, round)) say("wrong");
    if (round == 3) say("under way");
  }
  say("ended");
  wait_for_end_of_input();
  return 0;
}

int run(std::span<char*> arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::string(arguments[1]) == "serve") return serve();
  const auto number = [&](std::size_t i) { return std::stoi(arguments[i]); };
  return join(number(1), number(2), number(3), number(4), std::chrono::seconds(number(5)));
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  try {
    return spillway::run({argv, static_cast<std::size_t>(argc)});
  } catch (const spillway::Error& error) {
    std::cout << "error: " << error.what() << std::endl;
    return 1;
  }
}
