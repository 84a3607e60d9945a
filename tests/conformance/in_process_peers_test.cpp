#include "core/peers/framed_peers.h"
#include "tests/conformance/peers_conformance.h"
#include "tests/support/peers/in_process_pipe.h"

namespace spillway::testing {
namespace {

std::vector<std::unique_ptr<Peers>> in_process(std::span<PeersListener* const> listeners) {
  const std::size_t hosts = listeners.size();
  std::vector<std::vector<std::unique_ptr<Pipe>>> pipes(hosts);
  for (auto& each : pipes) each.resize(hosts);
  for (std::size_t a = 0; a < hosts; ++a) {
    for (std::size_t b = a + 1; b < hosts; ++b) {
      std::tie(pipes[a][b], pipes[b][a]) = InProcessPipe::make();
    }
  }
  std::vector<std::unique_ptr<Peers>> peers;
  for (std::size_t h = 0; h < hosts; ++h) {
    peers.push_back(
        std::make_unique<FramedPeers>(static_cast<int>(h), std::move(pipes[h]), *listeners[h]));
  }
  return peers;
}

INSTANTIATE_TEST_SUITE_P(InProcess, PeersConformance,
                         ::testing::Values(PeersCase{"InProcess", in_process}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace spillway::testing
