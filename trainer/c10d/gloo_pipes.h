#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/peers/pipe.h"
#include "trainer/c10d/rendezvous.h"

namespace spillway {

/// Where a host connects to others.
struct GlooPlace {
  std::string group;  ///< of hosts; differs from those of earlier groups at the rendezvous
  int number = 0;     ///< of this host
  std::string address = "127.0.0.1";  ///< where this host listens; the others reach it there
};

/// Connects this host to others by c10d's ProcessGroupGloo: a group of two for each direction of a
/// pipe, so that a host that is lost takes no other pipe with it. Thread-safe.
class GlooConnector {
 public:
  /// The rendezvous outlives this. Throws Error if the environment asks Gloo for TLS, which PyTorch
  /// 2.11 does not carry out.
  GlooConnector(const Rendezvous& rendezvous, GlooPlace place);
  ~GlooConnector();
  GlooConnector(const GlooConnector&) = delete;
  GlooConnector& operator=(const GlooConnector&) = delete;

  /// The other host does the same. Throws Error if it has not come within `limit`.
  std::unique_ptr<Pipe> connect(int peer, std::chrono::milliseconds limit) const;

 private:
  struct Device;
  const Rendezvous& rendezvous_;
  const GlooPlace place_;
  std::shared_ptr<Device> device_;
};

}  // namespace spillway
