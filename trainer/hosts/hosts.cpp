#include "trainer/hosts/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/c10d/pause.h"
#include "trainer/c10d/quiet_c10d.h"
#include "trainer/hosts/ask_store.h"
#include "trainer/hosts/host_endpoint.h"
#include "trainer/hosts/host_pipes.h"
#include "trainer/hosts/invitation.h"
#include "trainer/hosts/meeting.h"

namespace spillway {
namespace {

using std::chrono::milliseconds;

/// Hosts that have to come.
int least_of(const HostsConfig& config) {
  return config.start_size > 0 ? config.start_size : config.size;
}

/// Whether this host answers hosts that come later.
bool invites(const HostsConfig& config) {
  return config.number == 0 && !config.run_folder.empty() &&
         !has_store_of_torchrun(config.endpoint);
}

constexpr const char* kNext = "the hosts meet again";

std::string too_few(std::size_t left, const HostsConfig& config) {
  return fmt::format("{} {} left, and hosts.min_size is {}; {}", left,
                     left == 1 ? "host is" : "hosts are", config.min_size, kRestart);
}

std::string lost_text(int host) {
  return fmt::format("host {} is lost or has stopped; its own output says why", host);
}

}  // namespace

Hosts::Hosts(const HostsConfig& config, std::optional<int> gpu)
    : given_(config), config_(config), fleet_(config.number, config.size) {
  const Endpoint endpoint = checked_endpoint(config);
  const milliseconds limit = limit_of(config);
  address_ = address_of_host(config);
  require_trust(config, endpoint.host);
  require_trust(config, address_);
  const std::optional<Token> token = token_of(config);
  const bool opens = config.number == 0 && !has_store_of_torchrun(config.endpoint);
  const auto end = Clock::now() + limit;
  for (Pause pause;; pause()) {
    try {
      rendezvous_.emplace(opens ? Rendezvous::open(endpoint)
                                : Rendezvous::join(endpoint, left_until(end)));
      board_.emplace(*rendezvous_, token);
      meet_others();
      break;
    } catch (const HostLost&) {  // its store may be that of the meeting before
      if (!config.meets_again || Clock::now() + pause.longest() > end) throw;
    }
  }
  connect(token, gpu);
  if (invites(config)) {
    guests_.emplace(*board_, [this] {
      const MutexLock lock(mutex_);
      if (observer_) observer_->on_guest();
    });
  }
  life_ = std::jthread([this](const std::stop_token& stop) { show_life(stop); });
}

void Hosts::meet_others() {
  const milliseconds limit = limit_of(given_);
  // When they meet again, some may have waited for another host 0.
  const milliseconds arrival = given_.meets_again ? 2 * limit : limit;
  ask_store(given_.endpoint, [&] {
    if (invites(given_) && given_.meets_again) invite_guests(*board_);  // no number is free
    if (given_.number == 0) write_invitation(*board_, given_.invitation);
    const Meeting meeting = meet(*board_, given_, least_of(given_), {limit, arrival});
    if (invites(given_)) invite_guests(*board_);
    prefix_ = "spillway/" + meeting.name + "/";
    config_ = among({meeting.hosts.begin(), meeting.hosts.end()}, given_);
  });
}

/// To all that have met; those that are lost meanwhile need not be among those that begin.
void Hosts::connect(const std::optional<Token>& token, std::optional<int> gpu) {
  auto [pipes, failures] = connect_hosts(*rendezvous_, {config_, prefix_, address_, token, gpu});
  if (failures.contains(0)) throw HostLost(failures.at(0));
  const auto num_connected = std::ssize(pipes) - std::ssize(failures);
  if (num_connected < least_of(config_)) throw Error(failures.begin()->second);
  const MutexLock lock(mutex_);
  fleet_ = Fleet(number(), size());
  // Others may still be connecting, and proving that they have the token. NCCL connects one pair
  // after the other.
  const int rounds = config_.backend == BackendKind::nccl ? size() : 2;
  last_heard_.assign(pipes.size(), Clock::now() + rounds * limit_of(config_));
  if (config_.start_size > 0) detached_.emplace();
  PeersListener& listener = *this;
  peers_ = std::make_unique<FramedPeers>(number(), std::move(pipes), listener);
  for (const auto& [host, why] : failures) fleet_.lose(host);
  follow_fleet();
}

Hosts::~Hosts() {
  if (!peers_) return;
  part();
  life_ = {};
}

void Hosts::tell(const std::string& name, const std::string& value) {
  ask_store(config_.endpoint, [&] { board_->write(prefix_ + name, value); });
}

void Hosts::require_no_problem() const {
  const MutexLock lock(mutex_);
  if (next_) throw HostLost(why_);
  if (!why_.empty()) throw Error(why_);
}

std::string Hosts::hear(const std::string& name, int from) {
  const milliseconds limit = limit_of(config_);
  // Longer than until the loss of a silent host is noticed.
  const auto end = std::chrono::steady_clock::now() + limit + limit / 4;
  const auto give_up = [&] {
    require_no_problem();
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
  if (guests_ && !guests_->waiting().empty()) observer.on_guest();
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

bool Hosts::has_parted(int host) const {
  const MutexLock lock(mutex_);
  return parting_.contains(host);
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
  if (const auto word = fleet_.take_word()) notify_all(message_of(*word, endpoint_as_host_0()));
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

void Hosts::lost(int host, const std::string& why) {
  const MutexLock lock(mutex_);
  lose(host, why.empty() ? lost_text(host)
                         : fmt::format("the connection to host {} failed ({})", host, why));
  follow_fleet();
}

/// Training goes on with the others, unless there are too few, or none of them can take the place
/// of host 0.
void Hosts::lose(int host, const std::string& why) {
  if (fleet_.lost().contains(host)) return;
  if (passes_on_) {
    fleet_.lose(host);
    return changed_.notify_all();
  }
  if (!why_.empty()) return;
  const bool trains = observer_ || detached_, is_done = parting_.contains(host);
  const bool is_needed = host == 0 && (config_.run_folder.empty() || !has_begun_);
  if (!is_done && host == 0 && !has_begun_ && given_.without_host_0()) return end_without_host_0();
  if (!is_done && (is_needed || !trains)) return end(fmt::format("{}; {}", why, kRestart));
  if (!trains) return;
  peers_->drop(host);
  fleet_.lose(host);
  changed_.notify_all();
  if (is_done) return;
  // Those that meet again without host 0 look lost, and are counted when they have met.
  const bool counts = host == 0 || !lacks_host_0();
  const auto left = fleet_.hosts().size();
  if (counts && left < at(config_.min_size)) {
    return end(fmt::format("{}; {}", why, too_few(left, config_)));
  }
  if (observer_) observer_->on_host_lost(host, why);
}

void Hosts::end_without_host_0() {
  next_ = given_.without_host_0();
  const char* const remedy = next_ ? "the others meet again" : kRestart;
  end(fmt::format("host 0 is lost before the first step; its own output says why; {}", remedy));
}

void Hosts::drop(int host, const std::string& why) {
  const MutexLock lock(mutex_);
  lose(host, why);
  follow_fleet();
}

void Hosts::give_up_host_0() {
  const MutexLock lock(mutex_);
  if (why_.empty()) end_without_host_0();
}

void Hosts::leave(const std::string& why) {
  {
    const MutexLock lock(mutex_);
    end(why);
    if (passes_on_) return;  // the connections stay until part() has returned
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

/// Other hosts than host 0 choose a port in each round, because somebody else may take it before it
/// is used.
std::string Hosts::endpoint_as_host_0() {
  std::string& own = endpoints_[number()];
  try {
    own = number() == 0 ? config_.endpoint : to_text(free_endpoint(address_));
  } catch (const Error& error) {
    end(error.what());
  }
  return own;
}

bool Hosts::admit_guests(int most_hosts) {
  if (!guests_) return false;
  const auto waiting = guests_->waiting();
  const MutexLock lock(mutex_);
  admitted_.clear();
  for (const Guest& guest : waiting) {
    if (fleet_.hosts().size() + admitted_.size() < at(most_hosts)) {
      const int number_of_guest = size() + static_cast<int>(admitted_.size());
      admitted_[number_of_guest] = guest;
      continue;
    }
    const std::string problem = fmt::format(
        "train.reduction_groups allows no more than {} hosts; join again when one is lost",
        most_hosts);
    guests_->answer(guest, nlohmann::json{{"problem", problem}}.dump());
  }
  return !admitted_.empty();
}

void Hosts::announce_next() {
  const milliseconds moment = limit_of(config_) / 4;  // the others wait for the next meeting
  HostEndpoints endpoints;
  std::map<int, Guest> guests;
  {
    const MutexLock lock(mutex_);
    if (!why_.empty()) return;
    guests = admitted_;
    for (int host : in_training()) endpoints[host] = endpoints_[host];
    for (const auto& [number_of_guest, guest] : guests) endpoints[number_of_guest] = guest.endpoint;
    if (endpoints.size() < at(config_.min_size)) return end(too_few(endpoints.size(), config_));
    next_ = next_meeting(endpoints, config_);
    passes_on_ = true;
    notify_all(message_of(endpoints));
    changed_.wait_for(mutex_, moment, [this]() SPILLWAY_REQUIRES(mutex_) {
      return !why_.empty() || have_all_parted();
    });
    end(kNext);
  }
  for (const auto& [number_of_guest, guest] : guests) {
    const nlohmann::json answer{{"number", number_of_guest}, {"endpoints", endpoints}};
    guests_->answer(guest, answer.dump());
  }
  const auto deadline = Clock::now() + moment;
  for (const auto& [number_of_guest, guest] : guests) guests_->wait_for_reader(guest, deadline);
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
  const auto kind = static_cast<HostMessage>(message.front());
  if (kind == HostMessage::parting) hear_parting(from);
  if (kind == HostMessage::word) hear_word(from, message);
  if (kind == HostMessage::next) hear_next(from, message);
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
    const auto [word, endpoint] = word_of(message, size());
    endpoints_[from] = endpoint;
    for (int host : word.lost) lose(host, lost_text(host));
    fleet_.hear(from, word);
    follow_fleet();
  } catch (const std::exception&) {
    lose(from, fmt::format("host {} sends what this host cannot read", from));
    follow_fleet();
  }
}

/// The trials of this host have rested, and those of host 0 or its successor have ended since. That
/// host may be lost before all have heard it, so those that have pass it on.
void Hosts::hear_next(int from, std::span<const std::byte> message) {
  if (!why_.empty()) return;
  try {
    const HostEndpoints endpoints = endpoints_of(message);
    if (!endpoints.contains(number())) return;  // it has parted
    next_ = next_meeting(endpoints, config_);
    passes_on_ = true;
    notify_all(message);
    notify_all(message_of(HostMessage::parting));
    end(kNext);
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
  notify_all(message_of(HostMessage::parting));
  changed_.wait_for(mutex_, limit_of(config_), [this]() SPILLWAY_REQUIRES(mutex_) {
    return (!why_.empty() && !passes_on_) || have_all_parted();
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
    notify_all(message_of(HostMessage::alive));
    changed_.wait_until(mutex_, stop, now + interval,
                        [this]() SPILLWAY_REQUIRES(mutex_) { return !why_.empty(); });
  }
}

}  // namespace spillway
