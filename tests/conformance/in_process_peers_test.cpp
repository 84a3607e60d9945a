#include "core/sealing/sealed_pipe.h"
#include "tests/conformance/peers_conformance.h"
#include "tests/support/peers/connected_pipes.h"

namespace spillway::testing {
namespace {

std::vector<std::unique_ptr<Peers>> in_process(std::span<PeersListener* const> listeners) {
  return layered_peers(listeners, [](std::unique_ptr<Pipe> pipe, int, int) { return pipe; });
}

std::vector<std::unique_ptr<Peers>> sealed(std::span<PeersListener* const> listeners) {
  const Token token(std::string(32, 't'));
  return layered_peers(listeners, [&](std::unique_ptr<Pipe> pipe, int number, int peer) {
    return seal_pipe(std::move(pipe), {number, peer, "group"}, token, std::chrono::seconds(30));
  });
}

INSTANTIATE_TEST_SUITE_P(InProcess, PeersConformance,
                         ::testing::Values(PeersCase{"InProcess", in_process},
                                           PeersCase{"Sealed", sealed}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace spillway::testing
