#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sstream>

#include "python/src/module.h"
#include "runs/control/open_training.h"
#include "runs/control/recorder.h"
#include "runs/control/train_run.h"
#include "runs/folder/cache_file.h"
#include "runs/log/event_json.h"
#include "runs/output/run_documents.h"
#include "trainer/storage/run_lock.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace spillway::python {
namespace {

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

std::string train(const std::string& config_file, const std::vector<std::string>& overrides,
                  bool overwrite, nb::object tell) {
  std::ostringstream notes;
  auto [folder, run] = [&] {
    const nb::gil_scoped_release released;
    return open_training({config_file, overrides, overwrite}, resources(), notes);
  }();
  if (run) Training(*run, folder, std::move(tell), notes).train();
  return folder.path();
}

std::string resume(const std::string& path, const std::vector<std::string>& overrides,
                   nb::object tell) {
  std::ostringstream notes;
  const OutputFolder folder(path);
  auto run = [&] {
    const nb::gil_scoped_release released;
    require_begun(folder);
    return reopen_training(folder, overrides, {}, resources(), notes);
  }();
  if (run) Training(*run, folder, std::move(tell), notes).train();
  return folder.path();
}

/// What `spillway results --json` prints.
std::string results(const std::string& folder) {
  const bool live = holder_of(folder).has_value();
  const RunLog run = read_run(folder).run;
  const auto state = run.actual ? RunState::ended : live ? RunState::running : RunState::unfinished;
  return json_report(run, folder, state);
}

}  // namespace

void bind_runs(nb::module_& module) {
  module.def("train", &train, "config_file"_a, "overrides"_a, "overwrite"_a, "tell"_a,
             "Trains the run of a configuration file; returns its folder.");
  module.def("resume", &resume, "folder"_a, "overrides"_a, "tell"_a,
             "Resumes the run in a folder; returns the folder.");
  module.def("results", &results, "folder"_a, nb::call_guard<nb::gil_scoped_release>(),
             "The results of a run in a folder, as JSON.");
}

}  // namespace spillway::python
