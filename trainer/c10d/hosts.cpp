#include "trainer/c10d/hosts.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/system/system_error.hpp>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "core/base/config_check.h"
#include "spillway/error.h"
#include "trainer/c10d/gloo_pipes.h"
#include "trainer/c10d/invitation.h"
#include "trainer/c10d/quiet_c10d.h"

namespace spillway {
namespace {

using std::chrono::milliseconds;

milliseconds limit_of(const HostsConfig& config) {
  return milliseconds(static_cast<std::int64_t>(config.timeout_s * 1000));
}

std::optional<Endpoint> endpoint_of(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  const char* const end = text.data() + text.size();
  Endpoint endpoint{.host = text.substr(0, colon)};
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, endpoint.port);
  const bool is_port = error == std::errc() && stop == end && endpoint.port > 0;
  return is_port && endpoint.port < 65536 ? std::optional(endpoint) : std::nullopt;
}

void require_valid(const HostsConfig& config) {
  ConfigCheck check;
  check.require(endpoint_of(config.endpoint).has_value(), "hosts.endpoint",
                fmt::format("is '{}', must be HOST:PORT, where host 0 listens", config.endpoint));
  check.require(config.timeout_s > 0, "hosts.timeout_s",
                fmt::format("is {:g}, must be above 0", config.timeout_s));
  check.finish();
}

/// The address of this machine from which packets go to the endpoint. Sends nothing.
std::string address_towards(const Endpoint& endpoint) {
  using boost::asio::ip::udp;
  try {
    boost::asio::io_context context;
    udp::socket socket(context);
    const auto found = udp::resolver(context).resolve(endpoint.host, fmt::to_string(endpoint.port));
    socket.connect(found.begin()->endpoint());
    return socket.local_endpoint().address().to_string();
  } catch (const boost::system::system_error& error) {
    throw ConfigError("hosts.endpoint", 0,
                      fmt::format("is {}:{}, which this machine cannot reach ({}); check the name, "
                                  "or set hosts.address",
                                  endpoint.host, endpoint.port, error.code().message()));
  }
}

/// Whether torchrun, which has started this host, has opened a store at the endpoint.
bool has_store_of_torchrun() {
  const char* const says = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  return says != nullptr && std::string_view(says) == "True";
}

/// Runs calls of the store. `endpoint`: for the message if it does not answer.
template <typename Work>
auto ask_store(const std::string& endpoint, const Work& work) {
  const QuietC10d quiet;
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(fmt::format("the store at {} does not answer ({}); start all hosts again", endpoint,
                            first_line(error)));
  }
}

std::string key(const std::string& name) { return "spillway/" + name; }

/// Waits until the store has the key. `give_up`: called meanwhile; throws if it is no use to wait.
template <typename GiveUp>
std::string wait_for(c10d::Store& store, const std::string& name, const GiveUp& give_up) {
  constexpr milliseconds kInterval(10);
  while (!store.check({key(name)})) {
    give_up();
    std::this_thread::sleep_for(kInterval);
  }
  const std::vector<std::uint8_t> value = store.get(key(name));
  return {value.begin(), value.end()};
}

constexpr std::byte kParting{1};  ///< a message: this host is done

}  // namespace

Invitation ask_for_invitation(const std::string& endpoint, double timeout_s) {
  const HostsConfig config{.endpoint = endpoint, .timeout_s = timeout_s};
  require_valid(config);
  const auto rendezvous = Rendezvous::join(*endpoint_of(endpoint), limit_of(config));
  return ask_store(endpoint, [&] {
    c10d::Store& store = *rendezvous.store();
    const std::string document = wait_for(store, "invitation", [] {});
    return Invitation{static_cast<int>(store.add(key("invited"), 1)), document};
  });
}

Hosts::Hosts(const HostsConfig& config) : config_(config) {
  require_valid(config);
  const Endpoint endpoint = *endpoint_of(config.endpoint);
  const milliseconds limit = limit_of(config);
  const bool opens = config.number == 0 && !has_store_of_torchrun();
  rendezvous_.emplace(opens ? Rendezvous::open(endpoint) : Rendezvous::join(endpoint, limit));
  if (config.number == 0) tell("invitation", config.invitation);
  const HostGroup group{
      .name = "spillway/hosts",
      .number = config.number,
      .size = config.size,
      .address = config.address.empty() ? address_towards(endpoint) : config.address};
  PeersListener& listener = *this;
  peers_ = std::make_unique<FramedPeers>(config.number, connect_by_gloo(*rendezvous_, group, limit),
                                         listener);
}

Hosts::~Hosts() {
  if (peers_) part();
}

void Hosts::tell(const std::string& name, const std::string& value) {
  ask_store(config_.endpoint, [&] {
    rendezvous_->store()->set(key(name), std::vector<std::uint8_t>(value.begin(), value.end()));
  });
}

std::string Hosts::hear(const std::string& name, int from) {
  const auto end = std::chrono::steady_clock::now() + limit_of(config_);
  const auto give_up = [&] {
    if (const std::string why = problem(); !why.empty()) throw Error(why);
    if (std::chrono::steady_clock::now() < end) return;
    throw Error(
        fmt::format("host {} did not come as far as this one within {:g} s; give all hosts the "
                    "same trials, or raise hosts.timeout_s",
                    from, config_.timeout_s));
  };
  return ask_store(config_.endpoint,
                   [&] { return wait_for(*rendezvous_->store(), name, give_up); });
}

void Hosts::when_lost(std::function<void()> what) {
  const MutexLock lock(mutex_);
  when_lost_ = std::move(what);
  if (when_lost_ && lost_) when_lost_();
}

void Hosts::note_lost(int host) {
  const MutexLock lock(mutex_);
  if (lost_ || gave_up_ || parting_.contains(host)) return;
  lost_ = host;
  if (when_lost_) when_lost_();
  changed_.notify_all();
}

void Hosts::heard(int from, std::span<const std::byte>) {
  const MutexLock lock(mutex_);
  parting_.insert(from);
  changed_.notify_all();
}

void Hosts::give_up(const std::string& why) {
  {
    const MutexLock lock(mutex_);
    if (!std::exchange(gave_up_, true)) why_ = why;
  }
  peers_->abandon();
}

std::string Hosts::problem() const {
  const MutexLock lock(mutex_);
  if (!lost_) return why_;
  return fmt::format("host {} is lost or has stopped; start all hosts again with resume: auto",
                     *lost_);
}

/// A host that closes its connections early could take bytes away that others have not read.
void Hosts::part() {
  for (int host = 0; host < size(); ++host) {
    if (host != number()) peers_->notify(host, std::span(&kParting, 1));
  }
  const MutexLock lock(mutex_);
  changed_.wait_for(
      mutex_, std::chrono::duration<double>(config_.timeout_s), [this]() SPILLWAY_REQUIRES(mutex_) {
        return lost_ || gave_up_ || parting_.size() + 1 == static_cast<std::size_t>(size());
      });
}

}  // namespace spillway
