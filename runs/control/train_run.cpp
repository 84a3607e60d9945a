#include "runs/control/train_run.h"

#include <chrono>
#include <future>

namespace spillway {
namespace {

constexpr std::chrono::milliseconds kInterval(100);

class RunLoop {
 public:
  RunLoop(Session& session, Recorder& recorder, const RunWatch& watch)
      : session_(session), recorder_(recorder), watch_(watch) {}

  void run() {
    session_.start();
    for (bool again = true; again;) {
      auto running = std::async(std::launch::async, [&] { session_.wait(); });
      try {
        again = until(running);
      } catch (...) {
        session_.stop();
        throw;
      }
      running.get();
    }
    session_.finish();
  }

 private:
  /// Until no trial can go on. Returns whether one goes on after all.
  bool until(const std::future<void>& running) {
    for (bool last = false; !last;) {
      if (!stopped_ && watch_.wants_stop()) {
        session_.stop();
        stopped_ = true;
      }
      last = running.wait_for(kInterval) == std::future_status::ready;
      recorder_.take_events();
      recorder_.serve(stopped_);
      if (last && recorder_.take_may_go_on() && !stopped_) return true;
      if (!last) recorder_.sample_memory();
      watch_.show();
    }
    return false;
  }

  Session& session_;
  Recorder& recorder_;
  const RunWatch& watch_;
  bool stopped_ = false;
};

}  // namespace

void train_run(Session& session, Recorder& recorder, const RunWatch& watch) {
  RunLoop(session, recorder, watch).run();
}

}  // namespace spillway
