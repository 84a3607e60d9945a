#include "core/peers/connect.h"

#include <future>

#include "spillway/error.h"
#include "spillway/ids.h"

namespace spillway {

Connections connect_all(int number, int size,
                        const std::function<std::unique_ptr<Pipe>(int peer)>& connect) {
  std::map<int, std::future<std::unique_ptr<Pipe>>> connecting;
  for (int peer = 0; peer < size; ++peer) {
    if (peer != number) connecting[peer] = std::async(std::launch::async, connect, peer);
  }
  Connections all;
  all.pipes.resize(at(size));
  for (auto& [peer, pipe] : connecting) {
    try {
      all.pipes[at(peer)] = pipe.get();
    } catch (const Error& error) {
      all.failures[peer] = error.what();
    }
  }
  return all;
}

}  // namespace spillway
