#include <fmt/format.h>

#include "core/device/device.h"
#include "core/peers/nccl_pipe.h"
#include "core/sealing/sealed_pipe.h"
#include "tests/conformance/peers_conformance.h"
#include "tests/support/peers/connected_pipes.h"

namespace spillway::testing {
namespace {

/// Each host has a GPU, because NCCL connects no GPU with itself.
std::unique_ptr<Pipe> nccl(std::unique_ptr<Pipe> pipe, int number, int peer) {
  return over_nccl(std::move(pipe), {number, number < peer}, std::chrono::seconds(30));
}

constexpr std::size_t kHosts = 4;  // the most of a test

std::string why_not() {
  const std::size_t gpus = list_gpus().gpus.size();
  return gpus < kHosts ? fmt::format("{} GPUs are needed, found {}", kHosts, gpus) : "";
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

INSTANTIATE_TEST_SUITE_P(Nccl, PeersConformance,
                         ::testing::Values(PeersCase{"BetweenGpus", between_gpus, why_not},
                                           PeersCase{"OverSealedPipes", over_sealed, why_not}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace spillway::testing
