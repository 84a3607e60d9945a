#include <future>

#include "core/peers/connect.h"
#include "core/peers/framed_peers.h"
#include "core/sealing/sealed_pipe.h"
#include "spillway/ids.h"
#include "tests/conformance/peers_conformance.h"
#include "tests/support/peers/in_process_pipe.h"

namespace spillway::testing {
namespace {

using Pipes = std::vector<std::unique_ptr<Pipe>>;

/// By host.
std::vector<Pipes> pipes_of(std::size_t hosts) {
  std::vector<Pipes> pipes(hosts);
  for (auto& each : pipes) each.resize(hosts);
  for (std::size_t a = 0; a < hosts; ++a) {
    for (std::size_t b = a + 1; b < hosts; ++b) {
      std::tie(pipes[a][b], pipes[b][a]) = InProcessPipe::make();
    }
  }
  return pipes;
}

std::vector<std::unique_ptr<Peers>> in_process(std::span<PeersListener* const> listeners) {
  std::vector<Pipes> pipes = pipes_of(listeners.size());
  std::vector<std::unique_ptr<Peers>> peers;
  for (std::size_t h = 0; h < listeners.size(); ++h) {
    peers.push_back(
        std::make_unique<FramedPeers>(static_cast<int>(h), std::move(pipes[h]), *listeners[h]));
  }
  return peers;
}

/// The hosts seal their pipes at the same time.
std::vector<std::unique_ptr<Peers>> sealed(std::span<PeersListener* const> listeners) {
  std::vector<Pipes> pipes = pipes_of(listeners.size());
  const Token token(std::string(32, 't'));
  std::vector<std::future<std::unique_ptr<Peers>>> sealing;
  for (std::size_t h = 0; h < listeners.size(); ++h) {
    sealing.push_back(std::async(std::launch::async, [&, h]() -> std::unique_ptr<Peers> {
      const int number = static_cast<int>(h), size = static_cast<int>(listeners.size());
      auto connected = connect_all(number, size, [&](int peer) {
        return seal_pipe(std::move(pipes[h][at(peer)]), {number, peer, "group"}, token,
                         std::chrono::seconds(30));
      });
      return std::make_unique<FramedPeers>(number, std::move(connected.pipes), *listeners[h]);
    }));
  }
  std::vector<std::unique_ptr<Peers>> peers;
  for (auto& each : sealing) peers.push_back(each.get());
  return peers;
}

INSTANTIATE_TEST_SUITE_P(InProcess, PeersConformance,
                         ::testing::Values(PeersCase{"InProcess", in_process},
                                           PeersCase{"Sealed", sealed}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace spillway::testing
