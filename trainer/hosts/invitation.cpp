#include "trainer/hosts/invitation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "spillway/error.h"
#include "trainer/c10d/board.h"
#include "trainer/c10d/pause.h"
#include "trainer/hosts/ask_store.h"
#include "trainer/hosts/guests.h"
#include "trainer/hosts/host_endpoint.h"
#include "trainer/hosts/host_words.h"
#include "trainer/hosts/meeting.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

/// What hosts read that do not know the meeting.
constexpr const char *kInvitation = "spillway/invitation", *kNumbers = "spillway/numbers";

/// Of a host that joins. Numbers are given before the first meeting alone.
HostsConfig place_of(HostsConfig config, Clock::time_point end) {
  const auto rendezvous = Rendezvous::join(checked_endpoint(config), limit_of(config));
  Board board(rendezvous, token_of(config));
  const auto give_up = [&] {
    if (Clock::now() < end) return;
    throw Error(fmt::format("host 0 at {} has not answered within {:g} s", config.endpoint,
                            config.timeout_s));
  };
  return ask_store(config.endpoint, [&] {
    board.wait_for(kInvitation, give_up);
    if (!are_guests_invited(board)) {
      config.number = static_cast<int>(board.count(kNumbers, 1));
      if (config.number < config.size) return config;
    }
    const std::string own = to_text(free_endpoint(address_of_host(config)));
    const auto answer = nlohmann::json::parse(ask_to_join(board, own, give_up));
    if (answer.contains("problem")) throw Error(answer.at("problem").get<std::string>());
    answer.at("number").get_to(config.number);
    return next_meeting(answer.at("endpoints").get<HostEndpoints>(), config);
  });
}

}  // namespace

void write_invitation(Board& board, const std::string& text) { board.write(kInvitation, text); }

std::string invitation_at(const HostsConfig& config) {
  const Endpoint endpoint = checked_endpoint(config);
  require_trust(config, endpoint.host);
  const auto token = token_of(config);
  const auto rendezvous = Rendezvous::join(endpoint, limit_of(config));
  const auto end = Clock::now() + limit_of(config);
  return ask_store(config.endpoint, [&] {
    return Board(rendezvous, token).wait_for(kInvitation, [&] {
      if (Clock::now() < end) return;
      throw Error(
          fmt::format("{} is no endpoint of host 0, or host 0 does not invite others; "
                      "start it with hosts.endpoint, and hosts.size or hosts.start_size",
                      config.endpoint));
    });
  });
}

HostsConfig take_place(const HostsConfig& config) {
  const auto end = Clock::now() + limit_of(config);
  for (Pause pause;; pause()) {
    try {
      return place_of(config, end);
    } catch (const HostLost&) {  // it may open another store, because others join
      if (Clock::now() > end) throw;
    }
  }
}

}  // namespace spillway
