#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "experiments/support/spread.h"
#include "experiments/support/trained.h"

/// How long a job pauses when its devices change between two steps, on real CPU devices.
namespace spillway::experiments {
namespace {

struct Setting {
  GptConfig model;
  int steps, repetitions;
};

/// The change of a running job.
struct Change {
  std::string name;
  int lanes_before, lanes_after;
  bool device_comes = false;
};

struct Pause {
  double ms = 0, steps = 0;
};

class Run {
 public:
  Run(const Setting& setting, const Change& change) : change_(change), session_(config(change)) {
    TrialConfig trial = gpt_trial(setting.model);
    trial.train.max_steps = setting.steps;
    trial.train.data_parallel = change.lanes_before;
    trial.train.max_data_parallel = std::max(change.lanes_before, change.lanes_after);
    trial_ = session_.submit(trial);
    change_at_ = setting.steps / 2;
  }

  Pause pause() {
    std::thread trainer([this] { session_.run(); });
    watch();
    trainer.join();
    const TrialResult result = session_.result().trials[0];
    if (result.state != TrialState::done) throw Error(result.reason);
    if (result.lanes != change_.lanes_after) throw Error("the trial was not resized");
    return measured();
  }

 private:
  static SessionConfig config(const Change& change) {
    const int devices = change.device_comes ? change.lanes_before
                                            : std::max(change.lanes_before, change.lanes_after);
    return {.devices = std::vector<DeviceConfig>(at(devices), {.memory = 512_MiB})};
  }

  /// A device takes part once it is warm and has joined.
  void make_change() {
    if (change_.device_comes) {
      session_.add_device({.memory = 512_MiB});
    } else {
      session_.resize(trial_, change_.lanes_after);
    }
  }

  void watch() {
    std::uint64_t seen = 0;
    for (bool ended = false, changed = false; !ended;) {
      for (const SessionEvent& event : session_.poll(seen, 1)) {
        seen = event.sequence;
        ended = ended || (event.kind == SessionEvent::Kind::state && has_ended(event.state));
        const bool resized = event.kind == SessionEvent::Kind::resized;
        if (event.kind == SessionEvent::Kind::step) commits_s_.push_back(event.time_s);
        if (resized) first_on_new_lanes_ = commits_s_.size();
        if (event.kind == SessionEvent::Kind::joined) {
          session_.resize(trial_, change_.lanes_after);
        }
        if (!changed && event.kind == SessionEvent::Kind::step && event.step >= change_at_) {
          make_change();
          changed = true;
        }
      }
    }
  }

  /// Step i ends at commits_s_[i]; the steps around the change take longer than the slower of the
  /// median steps before and after by this much, together.
  Pause measured() const {
    std::vector<double> before, after;
    double around_s = 0;
    constexpr std::size_t kAround = 3;  // the step that ends with the change, and the next two
    for (std::size_t i = 2; i < commits_s_.size(); ++i) {
      const double step_s = commits_s_[i] - commits_s_[i - 1];
      if (i + 1 < first_on_new_lanes_) {
        before.push_back(step_s);
      } else if (i + 1 >= first_on_new_lanes_ + kAround) {
        after.push_back(step_s);
      } else {
        around_s += step_s;
      }
    }
    const double before_s = spread_of(before).median, after_s = spread_of(after).median;
    const double pause_s = around_s - before_s - (kAround - 1) * after_s;
    return {1e3 * pause_s, pause_s / after_s};
  }

  const Change change_;
  Session session_;
  JobId trial_;
  std::int64_t change_at_ = 0;
  std::vector<double> commits_s_;
  std::size_t first_on_new_lanes_ = 0;
};

void print(bool brief) {
  const Setting setting =
      brief ? Setting{{.num_hidden_layers = 1, .hidden_size = 32, .max_position_embeddings = 8},
                      20,
                      1}
            : Setting{{.num_hidden_layers = 4, .max_position_embeddings = 64}, 40, 9};
  const std::vector<Change> changes{{"1 lane to 2", 1, 2},
                                    {"2 lanes to 1", 2, 1},
                                    {"1 lane to 2, on a device that joins", 1, 2, true},
                                    {"2 lanes to 4", 2, 4},
                                    {"4 lanes to 2", 4, 2}};
  print_head({"change", "pause, ms", "pause, steps on the new lanes"});
  std::vector<std::vector<Pause>> pauses(changes.size());
  for (int i = 0; i < setting.repetitions; ++i) {
    for (std::size_t c = 0; c < changes.size(); ++c) {
      pauses[c].push_back(Run(setting, changes[c]).pause());
    }
  }
  for (std::size_t c = 0; c < changes.size(); ++c) {
    std::vector<double> ms, steps;
    for (const Pause& pause : pauses[c]) {
      ms.push_back(pause.ms);
      steps.push_back(pause.steps);
    }
    print_row({changes[c].name, text_of(spread_of(ms), 1), text_of(spread_of(steps), 2)});
  }
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  spillway::experiments::print(argc > 1 && std::strcmp(argv[1], "--brief") == 0);
}
