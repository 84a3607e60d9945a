#include "trainer/c10d/guests.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr const char *kInvited = "spillway/guests invited", *kNumber = "spillway/guests";

std::string key_of(std::int64_t guest, const char* what) {
  return fmt::format("spillway/guest/{}/{}", guest, what);
}

}  // namespace

Guests::Guests(Board& board, std::function<void()> on_guest)
    : board_(board),
      on_guest_(std::move(on_guest)),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

void Guests::watch(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kInterval(200);
  for (;;) {
    try {
      look();
    } catch (const std::exception&) {  // the store does not answer
    }
    const MutexLock lock(mutex_);
    const auto never = [] { return false; };
    never_.wait_until(mutex_, stop, std::chrono::steady_clock::now() + kInterval, never);
    if (stop.stop_requested()) return;
  }
}

void Guests::look() {
  const std::int64_t last = board_.count(kNumber, 0);
  for (std::int64_t number = 1; number <= last; ++number) {
    if (seen_.contains(number)) continue;
    std::optional<std::string> endpoint;
    try {
      endpoint = board_.read(key_of(number, "endpoint"));
      if (!endpoint) continue;
    } catch (const Error&) {  // it has another token, and knows
    }
    seen_.insert(number);
    if (!endpoint) continue;
    {
      const MutexLock lock(mutex_);
      waiting_.push_back({number, *endpoint});
    }
    on_guest_();
  }
}

std::vector<Guest> Guests::waiting() const {
  const MutexLock lock(mutex_);
  return waiting_;
}

void Guests::answer(const Guest& guest, const std::string& text, std::chrono::milliseconds limit) {
  {
    const MutexLock lock(mutex_);
    std::erase_if(waiting_, [&](const Guest& each) { return each.number == guest.number; });
  }
  board_.write(key_of(guest.number, "answer"), text);
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!board_.read(key_of(guest.number, "read")) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(Board::kInterval);
  }
}

void invite_guests(Board& board) { board.write(kInvited, "yes"); }

bool are_guests_invited(Board& board) { return board.read(kInvited).has_value(); }

std::string answer_to_guest(Board& board, const std::string& endpoint,
                            const std::function<void()>& give_up) {
  const std::int64_t number = board.count(kNumber, 1);
  board.write(key_of(number, "endpoint"), endpoint);
  std::string answer = board.wait_for(key_of(number, "answer"), give_up);
  board.write(key_of(number, "read"), "yes");
  return answer;
}

}  // namespace spillway
