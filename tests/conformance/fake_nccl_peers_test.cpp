#include "core/peers/nccl_pipe.h"
#include "core/sealing/sealed_pipe.h"
#include "tests/conformance/peers_conformance.h"
#include "tests/support/peers/connected_pipes.h"

namespace spillway::testing {
namespace {

/// Two GPUs, one for every second host.
std::unique_ptr<Pipe> nccl(std::unique_ptr<Pipe> pipe, int number, int peer) {
  return over_nccl(std::move(pipe), {number % 2, number < peer}, std::chrono::seconds(30));
}

std::vector<std::unique_ptr<Peers>> between_gpus(std::span<PeersListener* const> listeners) {
  return layered_peers(listeners, nccl);
}

std::vector<std::unique_ptr<Peers>> over_sealed(std::span<PeersListener* const> listeners) {
  const Token token(std::string(32, 't'));
  return layered_peers(listeners, [&](std::unique_ptr<Pipe> pipe, int number, int peer) {
    return nccl(
        seal_pipe(std::move(pipe), {number, peer, "group"}, token, std::chrono::seconds(30)),
        number, peer);
  });
}

INSTANTIATE_TEST_SUITE_P(FakeNccl, PeersConformance,
                         ::testing::Values(PeersCase{"BetweenGpus", between_gpus},
                                           PeersCase{"OverSealedPipes", over_sealed}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace spillway::testing
