#include "trainer/hosts/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "spillway/error.h"
#include "trainer/c10d/pause.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kName = "spillway/meeting";

std::string drawn_name() {
  std::random_device device;
  const unsigned high = device();
  const unsigned low = device();
  return fmt::format("{:08x}{:08x}", high, low);
}

std::string key_of(const std::string& name, const char* what, int host) {
  return fmt::format("spillway/{}/{}/{}", name, what, host);
}

std::string list_of(const std::string& name) { return fmt::format("spillway/{}/list", name); }

/// What has to be the same on all hosts.
std::string common(const HostsConfig& config) {
  return fmt::format("{} " SPILLWAY_VERSION, to_string(config.backend));
}

/// Throws ConfigError or Error. `theirs`: of host 0.
[[noreturn]] void refuse(const std::string& theirs, const HostsConfig& config) {
  const auto space = theirs.find(' ');
  const std::string backend = theirs.substr(0, space), own = to_string(config.backend);
  if (backend != own) {
    throw ConfigError(
        "hosts.backend", 0,
        fmt::format("is {}, and host 0 has {}; write the same on all hosts", own, backend));
  }
  throw Error(fmt::format("this host has Spillway " SPILLWAY_VERSION
                          ", and host 0 has {}; install the same version on all hosts",
                          theirs.substr(space + 1)));
}

/// Of host 0. `late`: completes a message.
Meeting begin_meeting(Board& board, const HostsConfig& config, int least,
                      const MeetingLimits& limits, const auto& late) {
  const auto end = Clock::now() + limits.arrival;
  const std::string name = drawn_name(), own = " " + common(config);
  board.write(kName, name);
  std::vector<int> hosts{0};
  std::set<int> missing;
  for (int host = 1; host < config.size; ++host) missing.insert(host);
  Pause pause;
  for (bool is_late = false; !missing.empty() && !is_late;) {
    is_late = Clock::now() > end;
    std::erase_if(missing, [&](int host) {
      const auto here = board.read(key_of(name, "here", host));
      if (!here) return false;
      const bool is_welcome = here->ends_with(own);
      board.write(key_of(name, "answer", host), *here + own);
      if (is_welcome) hosts.push_back(host);
      return is_welcome;
    });
    if (!missing.empty()) pause();
  }
  if (std::ssize(hosts) < least) {
    throw Error(late(fmt::format("host {} has not arrived", fmt::join(missing, " and host "))));
  }
  std::ranges::sort(hosts);
  board.write(list_of(name), nlohmann::json(hosts).dump());
  return {name, hosts};
}

/// Of another host: takes a name once host 0 has answered with what has to be the same on all
/// hosts.
Meeting join_meeting(Board& board, const HostsConfig& config, const MeetingLimits& limits,
                     const auto& late) {
  const auto end = Clock::now() + limits.answer;
  const std::string here = fmt::format("{} {}", drawn_name(), common(config));
  const std::string welcome = fmt::format("{} {}", here, common(config));
  const int number = config.number;
  std::string name, answer;
  for (Pause pause;; pause()) {
    const std::string now = board.read(kName).value_or("");
    if (now != name) board.write(key_of(now, "here", number), here);
    name = now;
    if (!name.empty()) answer = board.read(key_of(name, "answer", number)).value_or("");
    if (answer == welcome) break;
    if (answer.starts_with(here)) refuse(answer.substr(here.size() + 1), config);
    if (Clock::now() > end) {
      throw HostLost(late(name.empty() ? "host 0 has not arrived"
                                       : fmt::format("host 0 has not answered host {}", number)));
    }
  }
  const std::string list = board.wait_for(list_of(name), [&] {
    if (Clock::now() > end + limits.arrival) throw HostLost(late("host 0 has not answered"));
  });
  Meeting meeting{name, nlohmann::json::parse(list).get<std::vector<int>>()};
  if (std::ranges::find(meeting.hosts, number) != meeting.hosts.end()) return meeting;
  throw Error(late(fmt::format("host 0 has begun without host {}", number)));
}

}  // namespace

HostsConfig among(const std::set<int>& hosts, HostsConfig one) {
  one.number = static_cast<int>(std::distance(hosts.begin(), hosts.find(one.number)));
  one.size = static_cast<int>(hosts.size());
  return one;
}

HostsConfig next_meeting(const std::map<int, std::string>& endpoints, const HostsConfig& one) {
  std::set<int> hosts;
  std::vector<std::string> in_order;
  for (const auto& [host, endpoint] : endpoints) {
    hosts.insert(host);
    in_order.push_back(endpoint);
  }
  HostsConfig next = among(hosts, one);
  next.endpoint = in_order.front();
  next.successors = {in_order.begin() + 1, in_order.end()};
  next.start_size = one.min_size;
  next.meets_again = true;
  return next;
}

Meeting meet(Board& board, const HostsConfig& config, int least, const MeetingLimits& limits) {
  const auto limit = config.number == 0 ? limits.arrival : limits.answer;
  const auto late = [&](const std::string& who) {
    return fmt::format(
        "{} at {}:{} within {:g} s; check that all have started, with different "
        "numbers and the same hosts.size, and reach each other",
        who, board.endpoint().host, board.endpoint().port,
        std::chrono::duration<double>(limit).count());
  };
  return config.number == 0 ? begin_meeting(board, config, least, limits, late)
                            : join_meeting(board, config, limits, late);
}

}  // namespace spillway
