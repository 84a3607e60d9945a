#include "trainer/c10d/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "core/sealing/sealed_pipes.h"
#include "spillway/error.h"
#include "trainer/c10d/gloo_pipes.h"
#include "trainer/c10d/host_endpoint.h"
#include "trainer/c10d/invitation.h"
#include "trainer/c10d/meeting.h"
#include "trainer/c10d/quiet_c10d.h"

namespace spillway {
namespace {

using std::chrono::milliseconds;

milliseconds limit_of(const HostsConfig& config) {
  return milliseconds(static_cast<std::int64_t>(config.timeout_s * 1000));
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

/// Messages: this host is done; this host lives; its jobs rest, as the text behind says; it goes on
/// as host 0 with the hosts of the text.
constexpr std::byte kParting{1}, kAlive{2}, kWord{3}, kSuccessor{4};

std::vector<std::byte> message_of(std::byte kind, const nlohmann::json& json) {
  const std::string text = json.dump();
  std::vector<std::byte> message(1 + text.size(), kind);
  std::ranges::copy(std::as_bytes(std::span(text)), message.begin() + 1);
  return message;
}

/// Throws std::exception if it has none.
nlohmann::json text_of(std::span<const std::byte> message) {
  const auto* const text = reinterpret_cast<const char*>(message.data());
  return nlohmann::json::parse(text + 1, text + message.size());
}

std::vector<std::byte> message_of(const HostWord& word) {
  return message_of(kWord, {{"round", word.round},
                            {"lost", word.lost},
                            {"begun", word.jobs.begun},
                            {"steps", word.jobs.steps}});
}

/// Of a host among `size`. Throws std::exception if it is none.
HostWord word_of(std::span<const std::byte> message, int size) {
  const auto json = text_of(message);
  HostWord word;
  json.at("round").get_to(word.round);
  json.at("lost").get_to(word.lost);
  json.at("begun").get_to(word.jobs.begun);
  json.at("steps").get_to(word.jobs.steps);
  for (int host : word.lost) {
    if (host < 0 || host >= size) throw Error("no such host");
  }
  return word;
}

std::string lost_text(int host) {
  return fmt::format("host {} is lost or has stopped; its own output says why", host);
}

/// One of these hosts with its number among them.
HostsConfig among(const std::set<int>& hosts, HostsConfig one) {
  one.number = static_cast<int>(std::distance(hosts.begin(), hosts.find(one.number)));
  one.size = static_cast<int>(hosts.size());
  return one;
}

/// One of the hosts that are left, for their next meeting. More may be lost until then.
HostsConfig next_of(const std::set<int>& left, const HostsConfig& one,
                    const std::string& endpoint) {
  HostsConfig next = among(left, one);
  next.endpoint = endpoint;
  next.start_size = one.min_size;
  return next;
}

}  // namespace

std::string invitation_at(const HostsConfig& config) {
  const Endpoint endpoint = checked_endpoint(config);
  require_trust(config, endpoint.host);
  const auto token = token_of(config);
  const auto rendezvous = Rendezvous::join(endpoint, limit_of(config));
  const auto end = std::chrono::steady_clock::now() + limit_of(config);
  return ask_store(config.endpoint, [&] {
    return Board(rendezvous, token).wait_for(kInvitation, [&] {
      if (std::chrono::steady_clock::now() < end) return;
      throw Error(
          fmt::format("{} is no endpoint of host 0, or host 0 does not invite others; "
                      "start it with hosts.size and hosts.endpoint",
                      config.endpoint));
    });
  });
}

int take_host_number(const HostsConfig& config) {
  const auto rendezvous = Rendezvous::join(checked_endpoint(config), limit_of(config));
  return ask_store(config.endpoint,
                   [&] { return static_cast<int>(rendezvous.store()->add(kNumbers, 1)); });
}

Hosts::Hosts(const HostsConfig& config) : config_(config), fleet_(config.number, config.size) {
  const Endpoint endpoint = checked_endpoint(config);
  const milliseconds limit = limit_of(config);
  address_ = address_of_host(config);
  require_trust(config, endpoint.host);
  require_trust(config, address_);
  const std::optional<Token> token = token_of(config);
  const bool opens = config.number == 0 && !has_store_of_torchrun(config.endpoint);
  rendezvous_.emplace(opens ? Rendezvous::open(endpoint) : Rendezvous::join(endpoint, limit));
  board_.emplace(*rendezvous_, token);
  ask_store(config.endpoint, [&] {
    if (config.number == 0) board_->write(kInvitation, config.invitation);
    const int least = config.start_size > 0 ? config.start_size : config.size;
    const Meeting meeting = meet(*board_, config.number, config.size, least, limit);
    prefix_ = "spillway/" + meeting.name + "/";
    config_ = among({meeting.hosts.begin(), meeting.hosts.end()}, config_);
  });
  const HostGroup group{
      .name = prefix_ + "hosts", .number = number(), .size = size(), .address = address_};
  auto pipes = connect_by_gloo(*rendezvous_, group, limit);
  if (token) pipes = seal_pipes(std::move(pipes), number(), group.name, *token, limit);
  {
    const MutexLock lock(mutex_);
    fleet_ = Fleet(number(), size());
    last_heard_.assign(static_cast<std::size_t>(size()), Clock::now());
    PeersListener& listener = *this;
    peers_ = std::make_unique<FramedPeers>(number(), std::move(pipes), listener);
    if (config_.start_size > 0) detached_.emplace();
  }
  life_ = std::jthread([this](const std::stop_token& stop) { show_life(stop); });
}

Hosts::~Hosts() {
  if (!peers_) return;
  part();
  life_ = {};
}

void Hosts::tell(const std::string& name, const std::string& value) {
  ask_store(config_.endpoint, [&] { board_->write(prefix_ + name, value); });
}

std::string Hosts::hear(const std::string& name, int from) {
  const auto end = std::chrono::steady_clock::now() + limit_of(config_);
  const auto give_up = [&] {
    if (const std::string why = problem(); !why.empty()) throw Error(why);
    if (!present().contains(from)) throw Error(lost_text(from));
    if (std::chrono::steady_clock::now() < end) return;
    throw Error(fmt::format(
        "host {} did not answer within {:g} s; give all hosts the same trials, or raise "
        "hosts.timeout_s",
        from, config_.timeout_s));
  };
  return ask_store(config_.endpoint, [&] { return board_->wait_for(prefix_ + name, give_up); });
}

void Hosts::attach(HostsObserver& observer) {
  const MutexLock lock(mutex_);
  observer_ = &observer;
  has_begun_ = true;
  detached_.reset();
  if (!why_.empty()) return observer.on_hosts_ended();
  if (!fleet_.has_agreed()) fleet_.restart();  // this host may have told of the run before
  follow_fleet();
}

void Hosts::detach(const RestingJobs& jobs) {
  const MutexLock lock(mutex_);
  observer_ = nullptr;
  detached_ = jobs;
  if (!why_.empty() || fleet_.has_agreed()) return;
  fleet_.rest(fleet_.round(), jobs);
  follow_fleet();
}

void Hosts::rest(std::int64_t round, const RestingJobs& jobs) {
  const MutexLock lock(mutex_);
  fleet_.rest(round, jobs);
  follow_fleet();
}

void Hosts::renew() {
  const MutexLock lock(mutex_);
  fleet_.renew();
  follow_fleet();
}

std::set<int> Hosts::present() const {
  const MutexLock lock(mutex_);
  return fleet_.hosts();
}

/// Passes on what has changed in the fleet.
void Hosts::follow_fleet() {
  if (!why_.empty()) return;
  if (fleet_.take_call_to_rest()) {
    if (observer_) observer_->on_round(fleet_.round());
    if (detached_) {
      peers_->begin_epoch(static_cast<std::uint64_t>(fleet_.round()));
      fleet_.rest(fleet_.round(), *detached_);
    }
  }
  if (const auto word = fleet_.take_word()) notify_all(message_of(*word));
  auto agreement = fleet_.take_agreement();
  if (!agreement) return;
  agreement_ = std::move(agreement);
  if (observer_) observer_->on_agreed(*agreement_);
}

void Hosts::end(const std::string& why) {
  if (!why_.empty()) return;
  why_ = why;
  if (observer_) observer_->on_hosts_ended();
  changed_.notify_all();
}

void Hosts::lost(int host) {
  const MutexLock lock(mutex_);
  lose(host, lost_text(host));
  follow_fleet();
}

/// Training goes on with the others, unless there are too few, or none of them can take the place
/// of host 0.
void Hosts::lose(int host, const std::string& why) {
  if (!why_.empty() || fleet_.lost().contains(host)) return;
  const bool trains = observer_ || detached_, is_done = parting_.contains(host);
  const bool is_needed = host == 0 && (config_.run_folder.empty() || !has_begun_);
  if (!is_done && (is_needed || !trains)) return end(fmt::format("{}; {}", why, kRestart));
  if (!trains) return;
  peers_->drop(host);
  fleet_.lose(host);
  changed_.notify_all();
  if (is_done) return;
  const auto left = fleet_.hosts().size();
  if (left < static_cast<std::size_t>(config_.min_size)) {
    return end(fmt::format("{}; {} {} left, and hosts.min_size is {}; {}", why, left,
                           left == 1 ? "host is" : "hosts are", config_.min_size, kRestart));
  }
  if (observer_) observer_->on_host_lost(host, why);
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

/// The hosts that are left and not done.
std::set<int> Hosts::in_training() const {
  std::set<int> all = fleet_.hosts();
  for (int host : parting_) all.erase(host);
  return all;
}

bool Hosts::lacks_host_0() const { return fleet_.lost().contains(0) && !parting_.contains(0); }

bool Hosts::needs_successor() const {
  const MutexLock lock(mutex_);
  return lacks_host_0();
}

bool Hosts::is_successor() const {
  const MutexLock lock(mutex_);
  return lacks_host_0() && *in_training().begin() == number();
}

void Hosts::announce_successor() {
  const Endpoint free = free_endpoint(address_);
  const std::string endpoint = fmt::format("{}:{}", free.host, free.port);
  const MutexLock lock(mutex_);
  if (!why_.empty()) return;
  const std::set<int> left = in_training();
  next_ = next_of(left, config_, endpoint);
  notify_all(message_of(kSuccessor, {{"hosts", left}, {"endpoint", endpoint}}));
  changed_.wait_for(mutex_, limit_of(config_), [this]() SPILLWAY_REQUIRES(mutex_) {
    return !why_.empty() || have_all_parted();
  });
  end("host 0 is lost; this host goes on in its place");
}

std::optional<HostsConfig> Hosts::next() const {
  const MutexLock lock(mutex_);
  return next_;
}

std::string Hosts::problem() const {
  const MutexLock lock(mutex_);
  return why_;
}

void Hosts::heard(int from, std::span<const std::byte> message) {
  const MutexLock lock(mutex_);
  if (fleet_.lost().contains(from)) return;  // the connection has been dropped since
  last_heard_[static_cast<std::size_t>(from)] = Clock::now();
  if (message.front() == kParting) hear_parting(from);
  if (message.front() == kWord) hear_word(from, message);
  if (message.front() == kSuccessor) hear_successor(from, message);
  changed_.notify_all();
}

/// This host may now be the one to take the place of host 0.
void Hosts::hear_parting(int from) {
  parting_.insert(from);
  const bool waits = lacks_host_0() && fleet_.has_agreed();
  if (waits && observer_ && agreement_) observer_->on_agreed(*agreement_);
}

/// The word may be the first to tell this host of a loss.
void Hosts::hear_word(int from, std::span<const std::byte> message) {
  try {
    const HostWord word = word_of(message, size());
    for (int host : word.lost) lose(host, lost_text(host));
    fleet_.hear(from, word);
    follow_fleet();
  } catch (const std::exception&) {
    lose(from, fmt::format("host {} sends what this host cannot read", from));
    follow_fleet();
  }
}

/// The trials of this host have rested since host 0 was lost.
void Hosts::hear_successor(int from, std::span<const std::byte> message) {
  if (!why_.empty()) return;
  try {
    const auto json = text_of(message);
    const auto left = json.at("hosts").get<std::set<int>>();
    const auto endpoint = json.at("endpoint").get<std::string>();
    if (!left.contains(number())) return;  // it has parted
    next_ = next_of(left, config_, endpoint);
    notify_all(std::span(&kParting, 1));
    end(fmt::format("host 0 is lost; host {} goes on in its place at {}", from, endpoint));
  } catch (const std::exception&) {
    lose(from, fmt::format("host {} sends what this host cannot read", from));
    follow_fleet();
  }
}

void Hosts::notify_all(std::span<const std::byte> message) {
  for (int host : fleet_.hosts()) {
    if (host != number()) peers_->notify(host, message);
  }
}

/// A host that closes its connections early could take bytes away that others have not read.
void Hosts::part() {
  const MutexLock lock(mutex_);
  notify_all(std::span(&kParting, 1));
  changed_.wait_for(mutex_, limit_of(config_), [this]() SPILLWAY_REQUIRES(mutex_) {
    return !why_.empty() || have_all_parted();
  });
}

bool Hosts::have_all_parted() const {
  std::set<int> left = fleet_.hosts();
  left.erase(number());
  return std::ranges::includes(parting_, left);
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
      if (host == number() || now - heard < limit) continue;
      lose(host, fmt::format("host {} has been silent for {:g} s", host, config_.timeout_s));
    }
    follow_fleet();
    notify_all(std::span(&kAlive, 1));
    changed_.wait_until(mutex_, stop, now + interval,
                        [this]() SPILLWAY_REQUIRES(mutex_) { return !why_.empty(); });
  }
}

}  // namespace spillway
