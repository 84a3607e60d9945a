#pragma once

#include <functional>
#include <future>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/peers/framed_peers.h"
#include "spillway/ids.h"
#include "tests/support/peers/in_process_pipe.h"

namespace spillway::testing {

using Pipes = std::vector<std::unique_ptr<Pipe>>;

/// Between all of these hosts, by host and by the host at the other end.
inline std::vector<Pipes> in_process_pipes(std::size_t hosts) {
  std::vector<Pipes> pipes(hosts);
  for (auto& each : pipes) each.resize(hosts);
  for (std::size_t a = 0; a < hosts; ++a) {
    for (std::size_t b = a + 1; b < hosts; ++b) {
      std::tie(pipes[a][b], pipes[b][a]) = InProcessPipe::make();
    }
  }
  return pipes;
}

/// Puts a layer on a pipe from one host to another; both ends do so at the same time.
using AddLayer =
    std::function<std::unique_ptr<Pipe>(std::unique_ptr<Pipe> pipe, int number, int peer)>;

/// Peers over pipes with these layers, which each host adds in the order of the others. Throws what
/// `add` throws.
inline std::vector<std::unique_ptr<Peers>> layered_peers(std::span<PeersListener* const> listeners,
                                                         const AddLayer& add) {
  std::vector<Pipes> pipes = in_process_pipes(listeners.size());
  std::vector<std::future<std::unique_ptr<Peers>>> adding;
  for (std::size_t h = 0; h < listeners.size(); ++h) {
    adding.push_back(std::async(std::launch::async, [&, h]() -> std::unique_ptr<Peers> {
      const int number = static_cast<int>(h);
      for (int peer = 0; peer < std::ssize(pipes); ++peer) {
        std::unique_ptr<Pipe>& pipe = pipes[h][at(peer)];
        if (pipe) pipe = add(std::move(pipe), number, peer);
      }
      return std::make_unique<FramedPeers>(number, std::move(pipes[h]), *listeners[h]);
    }));
  }
  std::vector<std::unique_ptr<Peers>> peers;
  for (auto& each : adding) peers.push_back(each.get());
  return peers;
}

}  // namespace spillway::testing
