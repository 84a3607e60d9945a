#include "core/peers/connect.h"

#include <future>

#include "spillway/error.h"

namespace spillway {

Connections connect_all(int number, int size,
                        const std::function<std::unique_ptr<Pipe>(int peer)>& connect) {
  std::vector<std::future<std::unique_ptr<Pipe>>> connecting(static_cast<std::size_t>(size));
  for (int peer = 0; peer < size; ++peer) {
    if (peer == number) continue;
    connecting[static_cast<std::size_t>(peer)] = std::async(std::launch::async, connect, peer);
  }
  Connections all;
  for (int peer = 0; peer < size; ++peer) {
    all.pipes.emplace_back();
    if (peer == number) continue;
    try {
      all.pipes.back() = connecting[static_cast<std::size_t>(peer)].get();
    } catch (const Error& error) {
      all.failures[peer] = error.what();
    }
  }
  return all;
}

}  // namespace spillway
