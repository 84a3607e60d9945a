#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "trainer/c10d/within.h"

namespace c10d {
class Store;
}

namespace spillway {

/// Where a host listens.
struct Endpoint {
  std::string host = "127.0.0.1";  ///< name or address
  int port = 0;                    ///< 0: any that is free, of one to open
};

/// "HOST:PORT"
std::string to_text(const Endpoint& endpoint);
/// A port of this machine where nobody listens yet. Throws Error.
Endpoint free_endpoint(const std::string& host);

/// Where hosts find each other: a store of keys and values in one of them, c10d's TCPStore. Anyone
/// who reaches the port can read and change it.
class Rendezvous {
 public:
  /// Opens a store in this process, which listens at this endpoint alone. Throws Error.
  static Rendezvous open(const Endpoint& endpoint);
  /// Joins the store there. It may open later, but within `limit`, in which it also has to answer
  /// each call of ask(). Throws HostLost.
  static Rendezvous join(const Endpoint& endpoint, std::chrono::milliseconds limit);
  Rendezvous(Rendezvous&&) noexcept;
  ~Rendezvous();

  const Endpoint& endpoint() const { return endpoint_; }
  /// Its calls wait for as long as the store is silent.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  /// Calls `work`, which owns all that it uses, with the store. Throws std::exception if the store
  /// fails or is silent for too long.
  template <typename Work>
  auto ask(Work work) const {
    if (!limit_) return work(*store_);  // it is in this process
    return within(*limit_, [store = store_, work = std::move(work)] { return work(*store); });
  }

 private:
  Rendezvous(Endpoint endpoint, c10::intrusive_ptr<c10d::Store> store,
             std::optional<std::chrono::milliseconds> limit);

  Endpoint endpoint_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::optional<std::chrono::milliseconds> limit_;  ///< of a call
};

}  // namespace spillway
