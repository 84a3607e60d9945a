#include "trainer/hosts/guests.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "trainer/c10d/pause.h"

namespace spillway {
namespace {

constexpr const char *kInvited = "spillway/guests invited", *kNumber = "spillway/guests";

constexpr std::chrono::milliseconds kSign(500);  // between two signs of life

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
  constexpr std::int64_t kMost = 64;  // somebody else may have raised the number
  const auto num_seen = static_cast<std::int64_t>(seen_.size());
  const std::int64_t last = std::min(board_.count(kNumber, 0), num_seen + kMost);
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
      waiting_.push_back({{number, *endpoint}, 0, Clock::now()});
    }
    on_guest_();
  }
  note_signs();
}

void Guests::note_signs() {
  for (const Guest& guest : waiting()) {
    const std::int64_t signs = board_.count(key_of(guest.number, "signs"), 0);
    const MutexLock lock(mutex_);
    for (Waiting& each : waiting_) {
      if (each.guest.number != guest.number || each.signs == signs) continue;
      each.signs = signs;
      each.last_sign = Clock::now();
    }
  }
}

std::vector<Guest> Guests::waiting() const {
  const auto now = Clock::now();
  const MutexLock lock(mutex_);
  std::vector<Guest> guests;
  for (const Waiting& each : waiting_) {
    if (now - each.last_sign < 4 * kSign) guests.push_back(each.guest);
  }
  return guests;
}

void Guests::answer(const Guest& guest, const std::string& text) {
  {
    const MutexLock lock(mutex_);
    std::erase_if(waiting_, [&](const auto& each) { return each.guest.number == guest.number; });
  }
  board_.write(key_of(guest.number, "answer"), text);
}

void Guests::wait_for_reader(const Guest& guest, Clock::time_point end) const {
  Pause pause;
  while (board_.count(key_of(guest.number, "read"), 0) == 0 && Clock::now() < end) pause();
}

void invite_guests(Board& board) { board.write(kInvited, "yes"); }

bool are_guests_invited(Board& board) { return board.read(kInvited).has_value(); }

std::string ask_to_join(Board& board, const std::string& endpoint,
                        const std::function<void()>& give_up) {
  const std::int64_t number = board.count(kNumber, 1);
  board.write(key_of(number, "endpoint"), endpoint);
  auto last_sign = std::chrono::steady_clock::now();
  std::string answer = board.wait_for(key_of(number, "answer"), [&] {
    give_up();
    const auto now = std::chrono::steady_clock::now();
    if (now - last_sign < kSign) return;
    last_sign = now;
    board.count(key_of(number, "signs"), 1);
  });
  board.count(key_of(number, "read"), 1);
  return answer;
}

}  // namespace spillway
