#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <sstream>

#include "python/src/module.h"
#include "runs/config/config.h"
#include "runs/control/join_training.h"
#include "runs/control/open_training.h"
#include "runs/control/recorder.h"
#include "runs/control/train_run.h"
#include "runs/folder/cache_file.h"
#include "runs/folder/growth.h"
#include "runs/folder/prepare.h"
#include "runs/log/event_json.h"
#include "runs/log/event_log.h"
#include "runs/output/run_documents.h"
#include "spillway/data_source.h"
#include "trainer/compute/trial_state.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace spillway::python {
namespace {

using Release = nb::call_guard<nb::gil_scoped_release>;

RunResources resources() { return {.pilot_cache = pilot_cache_file()}; }

/// Trains a run on this thread. Ctrl-C stops the trials, which are saved, and is raised then.
class Training {
 public:
  /// `tell` is called with new events as JSON, and with notes for the user.
  Training(OpenRun& run, const OutputFolder& folder, nb::object tell, std::ostringstream& notes)
      : run_(run),
        tell_(std::move(tell)),
        notes_(notes),
        recorder_(
            run, folder, [this](const SessionEvent& event) { events_.push_back(to_json(event)); },
            notes) {}

  void train() {
    {
      const nb::gil_scoped_release released;
      train_run(*run_.session, recorder_, {[this] { return wants_stop(); }, [this] { show(); }});
      written_ = recorder_.finish();
    }
    tell();
    if (interrupted_) {
      PyErr_SetNone(PyExc_KeyboardInterrupt);
      throw nb::python_error();
    }
    if (!written_) throw Error(notes_.str());
  }

 private:
  bool wants_stop() {
    const nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) {
      PyErr_Clear();
      interrupted_ = true;
    }
    return interrupted_;
  }
  void show() {
    const nb::gil_scoped_acquire held;
    tell();
  }
  void tell() {
    const std::string notes = notes_.str();
    notes_.str("");
    const std::string events = std::exchange(events_, Json::array()).dump();
    try {
      tell_(events, notes);
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_KeyboardInterrupt)) throw;
      interrupted_ = true;
    }
  }

  OpenRun& run_;
  nb::object tell_;
  std::ostringstream& notes_;
  Json events_ = Json::array();
  bool interrupted_ = false;
  bool written_ = false;
  Recorder recorder_;
};

/// Trains the run that `open` opens, without the GIL, unless all its trials have ended. Goes on
/// when hosts meet again. Returns its folder.
template <typename Open>
std::string train_opened(const nb::object& tell, const Open& open) {
  std::ostringstream notes;
  OpenTraining training = [&] {
    const nb::gil_scoped_release released;
    return open(notes);
  }();
  while (training.run) {
    Training(*training.run, training.folder, tell, notes).train();
    const std::optional<HostsConfig> hosts = training.run->session->next_hosts();
    if (!hosts) break;
    const nb::gil_scoped_release released;
    notes << next_host_text(*hosts);
    std::vector<Trial> all = std::move(training.run->all);
    training.run.reset();  // its session ends
    for (Trial& trial : all) trial.config.session.hosts = *hosts;
    training.run = resume_run(std::move(all), {}, training.folder, resources(), {}, notes);
  }
  return training.folder.path();
}

std::string train(const std::string& config_file, const std::vector<std::string>& overrides,
                  bool overwrite, const nb::object& tell) {
  return train_opened(tell, [&](std::ostream& notes) {
    return open_training({config_file, overrides, overwrite}, resources(), notes);
  });
}

std::string resume(const std::string& path, const std::vector<std::string>& overrides,
                   const nb::object& tell) {
  return train_opened(tell, [&](std::ostream& notes) {
    OpenTraining training{.folder = OutputFolder(path), .run = {}};
    require_begun(training.folder);
    training.run = reopen_training(training.folder, overrides, {}, resources(), notes);
    return training;
  });
}

/// What `spillway results --json` prints.
std::string results(const std::string& folder) {
  const auto [logged, state] = read_run_and_state(folder);
  return json_report(logged.run, folder, state);
}

/// A trial of the run in a folder, also a clone.
Trial trial_of(const OutputFolder& folder, const std::string& name,
               const std::vector<std::string>& overrides) {
  Findings findings;
  const std::string path = folder.path();
  auto given = read_trials(folder.file("config.yaml"), overrides, findings, path);
  findings.throw_if_any();
  const std::vector<Trial> trials = match_trials(std::move(given), read_run(folder.path()).run);
  const auto trial = std::ranges::find(trials, name, &Trial::name);
  if (trial != trials.end()) return *trial;
  throw ConfigError("trial", 0, fmt::format("'{}' is not a trial of the run in '{}'", name, path));
}

/// The fields of a trial's configuration that are in its contract, as JSON: their texts by key.
std::string contract(const std::string& folder, const std::string& name) {
  return Json(contract_fields(trial_of(OutputFolder(folder), name, {}).config)).dump();
}

/// The final weights of a trial on its evaluation data, under the budgets of its run. Neither needs
/// nor changes what the folder has beside.
Evaluation evaluate(const std::string& path, const std::string& name,
                    const std::vector<std::string>& overrides) {
  const OutputFolder folder(path);
  const Trial trial = trial_of(folder, name, overrides);
  Findings findings;
  const TrialConfig config = run_configs({trial}, folder, findings).front();
  SessionConfig alone = run_session(trial, pilot_cache_file());
  alone.hosts = {};
  const auto session = make_session(std::move(alone), trial, findings);
  findings.throw_if_any();
  if (!config.data->eval) {
    throw ConfigError("data.eval_path", 0,
                      "is missing, and no samples are reserved for evaluation; name a file");
  }
  auto weights = copy_of(arrays_in(file_source(posix_file_system(), config.weights_file)));
  return session->evaluate(config, std::move(weights), config.data->eval);
}

}  // namespace

void bind_runs(nb::module_& module) {
  module.def("train", &train, "config_file"_a, "overrides"_a, "overwrite"_a, "tell"_a,
             "Trains the run of a configuration file; returns its folder.");
  module.def("resume", &resume, "folder"_a, "overrides"_a, "tell"_a,
             "Resumes the run in a folder; returns the folder.");
  module.def("results", &results, "folder"_a, Release(),
             "The results of a run in a folder, as JSON.");
  module.def("contract", &contract, "folder"_a, "trial"_a, Release(),
             "The fields of a trial's model and data that decide its bits, as JSON.");
  module.def("evaluate", &evaluate, "folder"_a, "trial"_a, "overrides"_a, Release(),
             "The final weights of a trial on its evaluation data.");
}

}  // namespace spillway::python
