#include "runs/log/metrics_files.h"

#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "runs/log/event_line.h"
#include "runs/log/event_log.h"
#include "runs/log/lines.h"
#include "runs/log/trial_names.h"
#include "spillway/error.h"
#include "spillway/results.h"

namespace spillway {
namespace {

StepMetrics step_of(const Json& event) {
  return {.step = event.at("step"),
          .loss = number_of(event.at("loss")),
          .learning_rate = number_of(event.at("learning_rate")),
          .gradient_norm = number_of(event.at("gradient_norm")),
          .tokens_per_s = number_of(event.at("tokens_per_s")),
          .time_s = number_of(event.at("time_s"))};
}

/// The steps before a `resumed` event, as saved in the checkpoint.
std::map<std::int64_t, StepMetrics> saved_steps(const Json& event) {
  std::map<std::int64_t, StepMetrics> saved;
  std::int64_t step = event.value("dropped", std::int64_t{0});
  for (const Json& values : event.at("steps")) {
    ++step;
    saved[step] = {.step = step,
                   .loss = number_of(values.at(0)),
                   .learning_rate = number_of(values.at(1)),
                   .gradient_norm = number_of(values.at(2)),
                   .metrics = {}};
  }
  for (const Json& values : event.at("evals")) {
    const auto row = saved.find(values.at(0).get<std::int64_t>());
    if (row == saved.end()) continue;
    row->second.eval_loss = number_of(values.at(1));
    if (values.size() > 2) row->second.metrics = metrics_of(values.at(2));
  }
  return saved;
}

}  // namespace

MetricsFiles::MetricsFiles(std::filesystem::path folder, std::optional<double> tensorboard_s)
    : folder_(std::move(folder)), tensorboard_s_(tensorboard_s) {
  std::ifstream log(folder_ / kEventFile, std::ios::binary);
  for (std::string line; read_line(log, line);) {
    try {
      take(parse_event_line(line).event);
    } catch (const IoError&) {
      throw;
    } catch (const Error&) {  // a damaged line
    } catch (const Json::exception&) {
    }
  }
  flush();
}

void MetricsFiles::take(const Json& event) {
  const std::string kind = event.at("event");
  if (kind == "run") files_.clear();
  if (kind == "run" || kind == "added") {
    for (const Json& trial : event.at("trials")) files_.push_back(file_of(trial));
  }
  const std::size_t trial = event.value("trial", files_.size());
  if (trial < files_.size()) take_of_trial(kind, event, files_[trial]);
}

MetricsFile MetricsFiles::file_of(const Json& trial) const {
  const std::string name = trial.at("name");
  const auto folder = trial_folder(folder_, name);
  std::optional<TensorboardFile> board;
  if (tensorboard_s_) {
    TensorboardTrial shown{.name = name, .begin_s = *tensorboard_s_};
    for (const auto& [key, value] : trial.at("sweep").items())
      shown.parameters.emplace_back(key, value);
    board.emplace(folder, std::move(shown));
  }
  return MetricsFile(folder / "metrics.csv", std::move(board),
                     trial.value("metrics", std::vector<std::string>()));
}

void MetricsFiles::take_of_trial(const std::string& kind, const Json& event, MetricsFile& file) {
  if (kind == "step") {
    file.add(step_of(event));
  } else if (kind == "eval") {
    file.add_eval(event.at("step"), number_of(event.at("loss")),
                  metrics_of(event.value("metrics", Json::object())));
  } else if (kind == "resumed") {
    file.resume(event.at("step"), saved_steps(event));
  } else if (kind == "state") {
    const auto state = value_named<TrialState>(event.at("state").get<std::string>());
    if (state && has_ended(*state)) file.end(*state);
  }
}

void MetricsFiles::flush() {
  for (MetricsFile& file : files_) file.flush();
}

}  // namespace spillway
