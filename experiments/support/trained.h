#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "spillway/session.h"
#include "tests/support/models/tiny_gpt.h"

/// Whole runs of a session on real devices, and the values that experiments read from them.
namespace spillway::experiments {

/// A GPT on made-up text: training only, without dropout and evaluation.
inline TrialConfig gpt_trial(const GptConfig& model) {
  TrialConfig trial = testing::tiny_trial("gpt", model);
  trial.data = std::make_shared<DataSplit>(DataSplit{trial.data->train, nullptr});
  trial.train = {.seed = 1, .batch_size = 8, .virtual_nodes = 8, .weight_decay = 0.1};
  return trial;
}

/// Costs shared by all sessions of this process, so that all plan alike.
class PilotCache {
 public:
  explicit PilotCache(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (name + ".pilot.json")) {
    std::filesystem::remove(path_);
  }
  ~PilotCache() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  PilotCache(const PilotCache&) = delete;
  PilotCache& operator=(const PilotCache&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Trained {
  RunResult result, simulated;
  TrialPlan plan;     ///< of the first trial
  double step_s = 0;  ///< of the first trial; see step_seconds()
};

/// From the second commit to the last: the first update touches fresh memory.
inline double step_seconds(const std::vector<double>& commits_s) {
  return (commits_s.back() - commits_s.at(1)) / static_cast<double>(commits_s.size() - 2);
}

/// Trains all trials to their ends. Throws Error if one fails.
inline Trained train(const SessionConfig& config, const std::vector<TrialConfig>& trials) {
  Session session(config);
  for (const TrialConfig& trial : trials) session.submit(trial);
  Trained trained{.simulated = session.simulate(), .plan = session.plan(JobId(0))};
  session.run();
  trained.result = session.result();
  for (const TrialResult& trial : trained.result.trials) {
    if (trial.state != TrialState::done) throw Error(trial.name + ": " + trial.reason);
  }
  std::vector<double> commits_s;
  for (const SessionEvent& event : session.poll(0, 0)) {
    const bool committed = event.kind == SessionEvent::Kind::step && event.trial == JobId(0);
    if (committed) commits_s.push_back(event.time_s);
  }
  trained.step_s = step_seconds(commits_s);
  return trained;
}

/// The share of load time in which a device had something to compute, over a link of this rate.
inline double loads_hidden_share(const RunResult& result, double link_bytes_per_s) {
  return 1 - result.copy_wait_s * link_bytes_per_s / static_cast<double>(result.h2d_bytes);
}

}  // namespace spillway::experiments
