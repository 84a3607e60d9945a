#include "trainer/hosts/host_pipes.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/peers/nccl_pipe.h"
#include "core/sealing/sealed_pipe.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/c10d/gloo_pipes.h"
#include "trainer/hosts/ask_store.h"

namespace spillway {
namespace {

/// Pair after pair, in one order on all hosts: what NCCL does to connect one pair may wait for what
/// a GPU has begun for another.
void add_nccl(Connections& connections, const MetHosts& hosts) {
  const int number = hosts.config.number;
  for (int peer = 0; peer < std::ssize(connections.pipes); ++peer) {
    std::unique_ptr<Pipe>& pipe = connections.pipes[at(peer)];
    if (!pipe) continue;
    try {
      pipe = over_nccl(std::move(pipe), {*hosts.gpu, number < peer}, limit_of(hosts.config));
    } catch (const PipeBroken& error) {
      pipe = nullptr;
      const std::string text = fmt::format(
          "host {} could not connect its GPU {} to host {} by NCCL ({}); start the hosts with "
          "NCCL_DEBUG=INFO to see why, or set hosts.backend: gloo",
          number, *hosts.gpu, peer, error.what());
      if (dynamic_cast<const PipeFailed*>(&error) != nullptr) throw Error(text);
      connections.failures[peer] = text;
      if (peer == 0) return;  // nobody goes on without it
    } catch (const Error& error) {
      throw ConfigError("hosts.backend", 0,
                        fmt::format("is nccl, but {}; or write gloo", error.what()));
    }
  }
}

}  // namespace

Connections connect_hosts(const Rendezvous& rendezvous, const MetHosts& hosts) {
  const auto limit = limit_of(hosts.config);
  const int number = hosts.config.number;
  const std::string group = hosts.prefix + "hosts";
  const GlooConnector connector(rendezvous, {group, number, hosts.address});
  Connections connections = connect_all(number, hosts.config.size, [&](int peer) {
    auto pipe = connector.connect(peer, limit);
    if (!hosts.token) return pipe;
    return seal_pipe(std::move(pipe), {number, peer, group}, *hosts.token, limit);
  });
  if (hosts.config.backend == BackendKind::nccl) add_nccl(connections, hosts);
  return connections;
}

}  // namespace spillway
