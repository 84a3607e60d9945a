#include "trainer/c10d/meeting.h"

#include <fmt/format.h>

#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "spillway/error.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kInterval(10);
constexpr const char* kName = "spillway/meeting";

std::string drawn_name() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

/// Keys of a store, with texts.
class Board {
 public:
  explicit Board(const Rendezvous& rendezvous) : store_(*rendezvous.store()) {}
  void write(const std::string& key, const std::string& text) { store_.set(key, text); }
  /// Empty if nobody has written it.
  std::string read(const std::string& key) {
    return store_.check({key}) ? store_.get_to_str(key) : "";
  }

 private:
  c10d::Store& store_;
};

std::string key_of(const std::string& name, const char* what, int host) {
  return fmt::format("spillway/{}/{}/{}", name, what, host);
}

/// Of host 0.
std::string name_meeting(Board& board, int size, Clock::time_point end, const auto& too_late) {
  const std::string name = drawn_name();
  board.write(kName, name);
  for (int host = 1; host < size; ++host) {
    for (std::string seen; seen.empty();) {
      seen = board.read(key_of(name, "here", host));
      if (!seen.empty()) board.write(key_of(name, "welcome", host), seen);
      if (Clock::now() > end) throw too_late(fmt::format("host {} has", host));
      if (seen.empty()) std::this_thread::sleep_for(kInterval);
    }
  }
  return name;
}

/// Of another host: takes a name once host 0 has confirmed it.
std::string join_meeting(Board& board, int number, Clock::time_point end, const auto& too_late) {
  const std::string own = drawn_name();
  std::string name;
  while (name.empty() || board.read(key_of(name, "welcome", number)) != own) {
    if (Clock::now() > end) throw too_late("host 0 has");
    std::this_thread::sleep_for(kInterval);
    const std::string now = board.read(kName);
    if (now == name) continue;
    name = now;
    board.write(key_of(name, "here", number), own);
  }
  return name;
}

}  // namespace

std::string name_of_meeting(const Rendezvous& rendezvous, int number, int size,
                            milliseconds limit) {
  Board board(rendezvous);
  const auto too_late = [&](const std::string& who) {
    return Error(
        fmt::format("{} not come to {}:{} within {:g} s; check that all have started with the same "
                    "hosts.size, and reach each other",
                    who, rendezvous.endpoint().host, rendezvous.endpoint().port,
                    std::chrono::duration<double>(limit).count()));
  };
  const auto end = Clock::now() + limit;
  return number == 0 ? name_meeting(board, size, end, too_late)
                     : join_meeting(board, number, end, too_late);
}

}  // namespace spillway
