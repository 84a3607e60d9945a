#include "trainer/c10d/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <random>
#include <set>
#include <thread>

#include "spillway/error.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

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

/// Of host 0.
std::string name_meeting(Board& board, int size, Clock::time_point end, const auto& too_late) {
  const std::string name = drawn_name();
  board.write(kName, name);
  std::set<int> missing;
  for (int host = 1; host < size; ++host) missing.insert(host);
  for (;;) {
    const bool is_late = Clock::now() > end;
    std::erase_if(missing, [&](int host) {
      const auto seen = board.read(key_of(name, "here", host));
      if (seen) board.write(key_of(name, "welcome", host), *seen);
      return seen.has_value();
    });
    if (missing.empty()) return name;
    if (is_late) {
      throw too_late(fmt::format("host {} has not arrived", fmt::join(missing, " and host ")));
    }
    std::this_thread::sleep_for(Board::kInterval);
  }
}

/// Of another host: takes a name once host 0 has confirmed it.
std::string join_meeting(Board& board, int number, Clock::time_point end, const auto& too_late) {
  const std::string own = drawn_name();
  std::string name;
  while (name.empty() || board.read(key_of(name, "welcome", number)) != own) {
    if (Clock::now() > end) {
      throw too_late(name.empty() ? "host 0 has not arrived"
                                  : fmt::format("host 0 has not answered host {}", number));
    }
    std::this_thread::sleep_for(Board::kInterval);
    const std::string now = board.read(kName).value_or("");
    if (now == name) continue;
    name = now;
    board.write(key_of(name, "here", number), own);
  }
  return name;
}

}  // namespace

std::string name_of_meeting(Board& board, int number, int size, milliseconds limit) {
  const auto too_late = [&](const std::string& who) {
    return Error(
        fmt::format("{} at {}:{} within {:g} s; check that all have started, with different "
                    "numbers and the same hosts.size, and reach each other",
                    who, board.endpoint().host, board.endpoint().port,
                    std::chrono::duration<double>(limit).count()));
  };
  const auto end = Clock::now() + limit;
  return number == 0 ? name_meeting(board, size, end, too_late)
                     : join_meeting(board, number, end, too_late);
}

}  // namespace spillway
