#include "apps/terminal/signals.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "apps/terminal/exit_code.h"

namespace spillway {
namespace {

Requests requests;
std::atomic<bool> training = false;
std::atomic<int> document = -1;  // where the document of --json goes

void write_to(int file, std::string_view text) {
  [[maybe_unused]] const auto written = ::write(file, text.data(), text.size());
}
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<unsigned>::is_always_lock_free);

/// Ends a process that does not train at once: it has nothing to save.
void on_stop(int) {
  if (training) {
    requests.stop = true;
    return;
  }
  write_to(STDERR_FILENO, "\nspillway: interrupted before training\n");
  static_assert(kInterrupted == 130);
  if (const int file = document; file >= 0) {
    write_to(file, R"({"error": {"kind": "interrupted", "exit_code": 130, )"
                   R"("message": "interrupted before training", "findings": []}})"
                   "\n");
  }
  ::_exit(kInterrupted);
}

void stop_on(int number) {
  struct sigaction action = {};
  action.sa_handler = on_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(number, &action, nullptr);
}

/// Whether the signal is ignored, as nohup does for its children.
bool is_ignored(int number) {
  struct sigaction action = {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void take_state_signal() {
  struct sigaction action = {};
  action.sa_handler = [](int) { ++requests.state; };
  action.sa_flags = static_cast<int>(SA_RESTART);
  sigaction(SIGUSR1, &action, nullptr);
}

const Requests& requests_by_signals() {
  take_state_signal();
  stop_on(SIGINT);
  stop_on(SIGTERM);
  if (!is_ignored(SIGHUP)) stop_on(SIGHUP);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return requests;
}

void stop_with_document(int file) { document = file; }

void training_begins() { training = true; }
void training_ends() { training = false; }

}  // namespace spillway
