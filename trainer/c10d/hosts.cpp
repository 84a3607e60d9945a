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
#include "trainer/c10d/meeting.h"
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
                      fmt::format("is {}:{}, to which this machine finds no way ({}); check the "
                                  "name, or set hosts.address",
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
    throw Error(
        fmt::format("host 0 is lost or has stopped: its store at {} does not answer ({}); its "
                    "own output says why",
                    endpoint, first_line(error)));
  }
}

/// What hosts read that do not know the meeting.
constexpr const char *kInvitation = "spillway/invitation", *kNumbers = "spillway/numbers";

/// Waits until the store has the key. `give_up`: called meanwhile; throws if it is no use to wait.
template <typename GiveUp>
std::string wait_for(c10d::Store& store, const std::string& key, const GiveUp& give_up) {
  constexpr milliseconds kInterval(10);
  while (!store.check({key})) {
    give_up();
    std::this_thread::sleep_for(kInterval);
  }
  return store.get_to_str(key);
}

/// Messages: this host is done; this host lives.
constexpr std::byte kParting{1}, kAlive{2};

}  // namespace

std::string invitation_at(const std::string& endpoint, double timeout_s) {
  const HostsConfig config{.endpoint = endpoint, .timeout_s = timeout_s};
  require_valid(config);
  const auto rendezvous = Rendezvous::join(*endpoint_of(endpoint), limit_of(config));
  const auto end = std::chrono::steady_clock::now() + limit_of(config);
  return ask_store(endpoint, [&] {
    return wait_for(*rendezvous.store(), kInvitation, [&] {
      if (std::chrono::steady_clock::now() < end) return;
      throw Error(
          fmt::format("{} is no endpoint of host 0, or host 0 does not invite others; "
                      "start it with hosts.size and hosts.endpoint",
                      endpoint));
    });
  });
}

int take_host_number(const std::string& endpoint, double timeout_s) {
  const HostsConfig config{.endpoint = endpoint, .timeout_s = timeout_s};
  const auto rendezvous = Rendezvous::join(*endpoint_of(endpoint), limit_of(config));
  return ask_store(endpoint,
                   [&] { return static_cast<int>(rendezvous.store()->add(kNumbers, 1)); });
}

Hosts::Hosts(const HostsConfig& config)
    : config_(config), last_heard_(static_cast<std::size_t>(config.size), Clock::now()) {
  require_valid(config);
  const Endpoint endpoint = *endpoint_of(config.endpoint);
  const milliseconds limit = limit_of(config);
  const bool opens = config.number == 0 && !has_store_of_torchrun();
  rendezvous_.emplace(opens ? Rendezvous::open(endpoint) : Rendezvous::join(endpoint, limit));
  ask_store(config.endpoint, [&] {
    if (config.number == 0) rendezvous_->store()->set(kInvitation, config.invitation);
    prefix_ = "spillway/" + name_of_meeting(*rendezvous_, config.number, config.size, limit) + "/";
  });
  const HostGroup group{
      .name = prefix_ + "hosts",
      .number = config.number,
      .size = config.size,
      .address = config.address.empty() ? address_towards(endpoint) : config.address};
  auto pipes = connect_by_gloo(*rendezvous_, group, limit);
  {
    const MutexLock lock(mutex_);
    std::ranges::fill(last_heard_, Clock::now());
  }
  PeersListener& listener = *this;
  peers_ = std::make_unique<FramedPeers>(config.number, std::move(pipes), listener);
  life_ = std::jthread([this](const std::stop_token& stop) { show_life(stop); });
}

Hosts::~Hosts() {
  if (!peers_) return;
  part();
  life_ = {};
}

void Hosts::tell(const std::string& name, const std::string& value) {
  ask_store(config_.endpoint, [&] { rendezvous_->store()->set(prefix_ + name, value); });
}

std::string Hosts::hear(const std::string& name, int from) {
  const auto end = std::chrono::steady_clock::now() + limit_of(config_);
  const auto give_up = [&] {
    if (const std::string why = problem(); !why.empty()) throw Error(why);
    if (std::chrono::steady_clock::now() < end) return;
    throw Error(fmt::format(
        "host {} did not answer within {:g} s; give all hosts the same trials, or raise "
        "hosts.timeout_s",
        from, config_.timeout_s));
  };
  return ask_store(config_.endpoint,
                   [&] { return wait_for(*rendezvous_->store(), prefix_ + name, give_up); });
}

void Hosts::when_ended(std::function<void()> what) {
  const MutexLock lock(mutex_);
  when_ended_ = std::move(what);
  if (when_ended_ && !why_.empty()) when_ended_();
}

void Hosts::end(const std::string& why) {
  if (!why_.empty()) return;
  why_ = why;
  if (when_ended_) when_ended_();
  changed_.notify_all();
}

void Hosts::note_lost(int host) {
  const MutexLock lock(mutex_);
  if (parting_.contains(host)) return;
  end(
      fmt::format("host {} is lost or has stopped; its own output says why. Start all hosts again "
                  "with resume: auto",
                  host));
}

void Hosts::leave(const std::string& why) {
  {
    const MutexLock lock(mutex_);
    end(why);
  }
  abandon();
}

void Hosts::abandon() {
  const MutexLock lock(abandoning_);  // it joins threads
  peers_->abandon();
}

std::string Hosts::problem() const {
  const MutexLock lock(mutex_);
  return why_;
}

void Hosts::heard(int from, std::span<const std::byte> message) {
  const MutexLock lock(mutex_);
  last_heard_[static_cast<std::size_t>(from)] = Clock::now();
  if (message.front() == kParting) parting_.insert(from);
  changed_.notify_all();
}

void Hosts::notify_all(std::byte message) {
  for (int host = 0; host < size(); ++host) {
    if (host != number()) peers_->notify(host, std::span(&message, 1));
  }
}

/// A host that closes its connections early could take bytes away that others have not read.
void Hosts::part() {
  notify_all(kParting);
  const MutexLock lock(mutex_);
  changed_.wait_for(mutex_, limit_of(config_), [this]() SPILLWAY_REQUIRES(mutex_) {
    return !why_.empty() || parting_.size() + 1 == static_cast<std::size_t>(size());
  });
}

/// Says that this host lives, and notices those that do not say it any more.
void Hosts::show_life(const std::stop_token& stop) {
  const auto limit = limit_of(config_), interval = limit / 8;
  auto last = Clock::now();
  const MutexLock lock(mutex_);
  while (!stop.stop_requested() && why_.empty()) {
    const auto now = Clock::now();
    const bool was_stopped = now - last > 2 * interval;  // this process, so the others count anew
    last = now;
    for (int host = 0; host < size(); ++host) {
      auto& heard = last_heard_[static_cast<std::size_t>(host)];
      if (was_stopped) heard = now;
      if (host == number() || parting_.contains(host) || now - heard < limit) continue;
      end(fmt::format("host {} has been silent for {:g} s; start all hosts again with resume: auto",
                      host, config_.timeout_s));
    }
    mutex_.unlock();
    notify_all(kAlive);
    mutex_.lock();
    changed_.wait_until(mutex_, stop, now + interval,
                        [this]() SPILLWAY_REQUIRES(mutex_) { return !why_.empty(); });
  }
}

}  // namespace spillway
