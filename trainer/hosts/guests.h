#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "trainer/c10d/board.h"

/// Hosts that come while others train.
namespace spillway {

/// One that waits to take part.
struct Guest {
  std::int64_t number = 0;  ///< from 1 on, as they came
  std::string endpoint;     ///< where it would listen as host 0
};

/// Those of host 0. Thread-safe.
class Guests {
 public:
  /// The board outlives this. `on_guest`: on a thread of this object.
  Guests(Board& board, std::function<void()> on_guest);

  /// Those that have shown a sign of life in the last seconds.
  std::vector<Guest> waiting() const;
  /// Gives one its answer. It waits no more.
  void answer(const Guest& guest, const std::string& text);
  /// Waits until it has read its answer, or the time is over.
  void wait_for_reader(const Guest& guest, std::chrono::steady_clock::time_point end) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    Guest guest;
    std::int64_t signs = 0;  // of life
    Clock::time_point last_sign;
  };

  void watch(const std::stop_token& stop);
  void look();
  void note_signs();

  Board& board_;
  const std::function<void()> on_guest_;
  mutable Mutex mutex_;
  CondVar never_;
  std::set<std::int64_t> seen_;  // of the thread
  std::vector<Waiting> waiting_ SPILLWAY_GUARDED_BY(mutex_);
  std::jthread thread_;
};

/// Host 0 says that it answers guests.
void invite_guests(Board& board);
/// Whether it does.
bool are_guests_invited(Board& board);
/// Asks host 0 to let a host that listens at this endpoint take part. `give_up`: called while it
/// has not answered; throws if it is no use to wait. Returns the answer.
std::string ask_to_join(Board& board, const std::string& endpoint,
                        const std::function<void()>& give_up);

}  // namespace spillway
