#include "apps/signals.h"

#include <csignal>

namespace spillway {
namespace {

Requests requests;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<unsigned>::is_always_lock_free);

}  // namespace

void take_state_signal() {
  struct sigaction action = {};
  action.sa_handler = [](int) { ++requests.state; };
  action.sa_flags = static_cast<int>(SA_RESTART);
  sigaction(SIGUSR1, &action, nullptr);
}

const Requests& requests_by_signals() {
  take_state_signal();
  struct sigaction action = {};
  action.sa_handler = [](int) { requests.stop = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return requests;
}

}  // namespace spillway
