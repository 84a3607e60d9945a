#include "trainer/c10d/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/system_error.hpp>
#include <cstdint>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "spillway/error.h"
#include "trainer/c10d/pause.h"
#include "trainer/c10d/quiet_c10d.h"

namespace spillway {
namespace {

using boost::asio::ip::tcp;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

struct Listening {
  int socket = -1;
  std::uint16_t port = 0;
};

/// c10d alone would listen at every address of the machine. Throws Error.
Listening listen_at(const Endpoint& endpoint) {
  boost::asio::io_context context;
  try {
    const auto found = tcp::resolver(context).resolve(endpoint.host, fmt::to_string(endpoint.port));
    tcp::acceptor acceptor(context, found.begin()->endpoint());
    const std::uint16_t port = acceptor.local_endpoint().port();
    return {acceptor.release(), port};
  } catch (const boost::system::system_error& error) {
    throw Error(
        fmt::format("hosts cannot meet at {}:{}, because this machine cannot listen there "
                    "({}); choose another address or port",
                    endpoint.host, endpoint.port, error.code().message()));
  }
}

/// c10d alone would wait for longer than the limit that it is given. Throws
/// boost::system::system_error.
void wait_for_listener(const Endpoint& endpoint, Clock::time_point end) {
  for (Pause pause(milliseconds(50));; pause()) {
    boost::asio::io_context context;
    boost::system::error_code problem = boost::asio::error::timed_out;
    tcp::socket socket(context);
    const auto found = tcp::resolver(context).resolve(endpoint.host, fmt::to_string(endpoint.port));
    boost::asio::async_connect(socket, found,
                               [&](const auto& error, const auto&) { problem = error; });
    context.run_until(end);
    if (!problem) return;
    if (Clock::now() + pause.longest() > end) throw boost::system::system_error(problem);
  }
}

c10d::TCPStoreOptions options_of(std::uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  return options;
}

}  // namespace

std::string to_text(const Endpoint& endpoint) {
  return fmt::format("{}:{}", endpoint.host, endpoint.port);
}

Endpoint free_endpoint(const std::string& host) {
  const Listening listening = listen_at({.host = host});
  ::close(listening.socket);
  return {host, listening.port};
}

Rendezvous::Rendezvous(Endpoint endpoint, c10::intrusive_ptr<c10d::Store> store,
                       std::optional<std::chrono::milliseconds> limit)
    : endpoint_(std::move(endpoint)), store_(std::move(store)), limit_(limit) {}
Rendezvous::Rendezvous(Rendezvous&&) noexcept = default;
Rendezvous::~Rendezvous() = default;

Rendezvous Rendezvous::open(const Endpoint& endpoint) {
  const Listening listening = listen_at(endpoint);
  c10d::TCPStoreOptions options = options_of(listening.port);
  options.isServer = true;
  options.masterListenFd = listening.socket;
  return {{endpoint.host, listening.port},
          c10::make_intrusive<c10d::TCPStore>(endpoint.host, options),
          /*limit=*/{}};
}

Rendezvous Rendezvous::join(const Endpoint& endpoint, milliseconds limit) {
  const QuietC10d quiet;
  const auto end = Clock::now() + limit;
  try {
    wait_for_listener(endpoint, end);
    c10d::TCPStoreOptions options = options_of(static_cast<std::uint16_t>(endpoint.port));
    options.timeout = left_until(end);
    return {endpoint,
            within(options.timeout,
                   [host = endpoint.host, options] {
                     return c10::make_intrusive<c10d::TCPStore>(host, options);
                   }),
            limit};
  } catch (const std::exception& error) {
    throw HostLost(
        fmt::format("nobody answered at {}:{} within {} s ({}); check the endpoint, and "
                    "that its host has started and can be reached",
                    endpoint.host, endpoint.port, std::chrono::duration<double>(limit).count(),
                    first_line(error)));
  }
}

}  // namespace spillway
