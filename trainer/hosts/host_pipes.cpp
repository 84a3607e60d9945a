#include "trainer/hosts/host_pipes.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "core/peers/nccl_pipe.h"
#include "core/sealing/sealed_pipe.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/c10d/gloo_pipes.h"
#include "trainer/hosts/ask_store.h"
#include "trainer/hosts/host_endpoint.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

/// Host 0 tells the others which one it has.
void require_same_backend(Board& board, const MetHosts& hosts) {
  const HostsConfig& config = hosts.config;
  const std::string own = to_string(config.backend), name = hosts.prefix + "backend";
  if (config.number == 0) return board.write(name, own);
  const auto end = Clock::now() + limit_of(config);
  const std::string other = board.wait_for(name, [&] {
    if (Clock::now() > end) throw HostLost("host 0 has not answered");
  });
  if (other == own) return;
  throw ConfigError(
      "hosts.backend", 0,
      fmt::format("is {} here and {} on host 0; write the same on all hosts", own, other));
}

void require_loaded_nccl() {
  try {
    require_nccl();
  } catch (const Error& error) {
    throw ConfigError("hosts.backend", 0,
                      fmt::format("is nccl, but {}; or write gloo", error.what()));
  }
}

/// Pair after pair, in one order on all hosts: what NCCL does to connect one pair may wait for what
/// a GPU has begun for another.
void add_nccl(Connections& connections, const MetHosts& hosts) {
  const int number = hosts.config.number;
  for (int peer = 0; peer < std::ssize(connections.pipes); ++peer) {
    std::unique_ptr<Pipe>& pipe = connections.pipes[at(peer)];
    if (!pipe) continue;
    try {
      pipe = over_nccl(std::move(pipe), {*hosts.gpu, number < peer}, limit_of(hosts.config));
    } catch (const std::exception& error) {
      pipe = nullptr;
      connections.failures[peer] = fmt::format(
          "host {} could not connect its GPU {} to host {} by NCCL ({}); NCCL_DEBUG=INFO makes "
          "NCCL "
          "say why, and hosts.backend: gloo does without it",
          number, *hosts.gpu, peer, error.what());
    }
  }
}

}  // namespace

Connections connect_hosts(const Rendezvous& rendezvous, Board& board, const MetHosts& hosts) {
  const bool with_nccl = hosts.config.backend == BackendKind::nccl;
  if (with_nccl) require_loaded_nccl();
  ask_store(hosts.config.endpoint, [&] { require_same_backend(board, hosts); });
  const auto limit = limit_of(hosts.config);
  const int number = hosts.config.number;
  const std::string group = hosts.prefix + "hosts";
  const GlooConnector connector(rendezvous, {group, number, hosts.address});
  Connections connections = connect_all(number, hosts.config.size, [&](int peer) {
    auto pipe = connector.connect(peer, limit);
    if (!hosts.token) return pipe;
    return seal_pipe(std::move(pipe), {number, peer, group}, *hosts.token, limit);
  });
  if (with_nccl) add_nccl(connections, hosts);
  return connections;
}

}  // namespace spillway
