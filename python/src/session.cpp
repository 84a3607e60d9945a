#include "spillway/session.h"

#include <fmt/format.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>

#include "python/src/document.h"
#include "python/src/module.h"
#include "python/src/tensor_caster.h"
#include "runs/config/embedded.h"
#include "runs/folder/cache_file.h"
#include "runs/folder/strategy_file.h"
#include "runs/folder/trial_factory.h"
#include "runs/log/event_json.h"
#include "runs/text/format.h"
#include "spillway/weights.h"

namespace nb = nanobind;
using namespace nb::literals;
namespace fs = std::filesystem;

namespace spillway::python {
namespace {

using Release = nb::call_guard<nb::gil_scoped_release>;

/// A session that belongs to the process which made it. A child of fork() has none of its threads,
/// so there it is left alone.
class PythonSession {
 public:
  explicit PythonSession(const std::string& document) {
    SessionConfig config = read_document(document, &read_session);
    config.pilot_cache = pilot_cache_file();
    session_ = std::make_unique<Session>(std::move(config));
  }
  /// Without the GIL, which the last user of a tensor on another thread may take.
  ~PythonSession() {
    const nb::gil_scoped_release released;
    if (process_ == getpid()) {
      session_.reset();
    } else {
      static_cast<void>(session_.release());
    }
  }
  PythonSession(const PythonSession&) = delete;
  PythonSession& operator=(const PythonSession&) = delete;

  Session* operator->() const {
    if (process_ != getpid()) throw Error("the session belongs to the parent of this process");
    return session_.get();
  }

 private:
  const pid_t process_ = getpid();
  std::unique_ptr<Session> session_;
};

/// A trial as Python describes it.
TrialConfig trial_config(const PythonModel& model, const PythonData& data,
                         const std::string& document, const std::string& name,
                         const std::string& client_id, std::int64_t until,
                         const fs::path& checkpoint_dir, const fs::path& weights_file) {
  Training training = read_document(document, &read_training);
  if (!training.strategy.empty()) read_strategies(training.strategy, name, training.train);
  if (!model.info.name.empty()) {
    divide_batch(training.train, model.info);
    check_virtual_nodes(training.train, model.path, model.info);
  }
  TrialConfig config{.name = name,
                     .client_id = client_id,
                     .model = model.make,
                     .data = data.split,
                     .train = training.train,
                     .until = until,
                     .checkpoint = training.checkpoint,
                     .contract = model.contract,
                     .weights_file = weights_file,
                     .keep_weights = weights_file.empty()};
  config.checkpoint.folder = checkpoint_dir;
  config.checkpoint.resume = !checkpoint_dir.empty();
  return config;
}

std::uint32_t submit(PythonSession& session, const PythonModel& model, const PythonData& data,
                     const std::string& document, const std::string& name,
                     const std::string& client_id, std::int64_t until,
                     const fs::path& checkpoint_dir, const fs::path& weights_file) {
  return session
      ->submit(
          trial_config(model, data, document, name, client_id, until, checkpoint_dir, weights_file))
      .value;
}

std::string events(const PythonSession& session, std::uint64_t since, double wait_s) {
  Json list = Json::array();
  for (const SessionEvent& event : session->poll(since, wait_s)) list.push_back(to_json(event));
  return list.dump();
}

std::vector<std::pair<std::string, at::Tensor>> weights(const PythonSession& session,
                                                        std::uint32_t trial) {
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (NamedTensor& tensor : session->weights(JobId(trial))) {
    named.emplace_back(std::move(tensor.name), std::move(tensor.value));
  }
  return named;
}

/// Writes the strategy that it finds.
SearchResult search(const PythonSession& session, std::uint32_t trial, const fs::path& path,
                    int proposals, std::uint64_t seed) {
  if (fs::exists(path)) {
    throw ConfigError(
        "path", 0,
        fmt::format("is {}, which exists; remove it, or choose another name", path.string()));
  }
  SearchResult result = session->search(JobId(trial), {.proposals = proposals, .seed = seed});
  if (result.best.strategy) {
    const std::string comment = fmt::format("Found by spillway.search_strategy; planned step {}",
                                            format_seconds(result.best.cost->step_s));
    write_strategies(path, {{.trials = {"*"}, .strategy = *result.best.strategy}}, comment, "path");
  }
  return result;
}

TrainValues values_of(std::optional<double> learning_rate, std::optional<double> weight_decay,
                      std::optional<double> max_grad_norm) {
  return {learning_rate, weight_decay, max_grad_norm};
}

std::uint32_t clone(PythonSession& session, std::uint32_t trial, const std::string& name,
                    const std::string& client_id, std::optional<double> learning_rate,
                    std::optional<double> weight_decay, std::optional<double> max_grad_norm,
                    std::int64_t max_steps, std::int64_t until, const fs::path& checkpoint_dir,
                    const fs::path& weights_file) {
  const CloneChanges changes{.name = name,
                             .client_id = client_id,
                             .values = values_of(learning_rate, weight_decay, max_grad_norm),
                             .max_steps = max_steps,
                             .until = until,
                             .checkpoint_folder = checkpoint_dir,
                             .weights_file = weights_file};
  return session->clone(JobId(trial), changes).value;
}

void add_device(PythonSession& session, const std::string& document) {
  const SessionConfig config = read_document(document, &read_session);
  session->add_device(config.devices.at(0));
}

void bind_life(nb::class_<PythonSession>& session) {
  session
      .def(
          "start", [](PythonSession& self) { self->start(); }, Release(),
          "Trials train from now on.")
      .def(
          "wait_for",
          [](PythonSession& self, double seconds, std::optional<std::uint32_t> trial) {
            return self->wait_for(seconds, trial ? std::optional(JobId(*trial)) : std::nullopt);
          },
          "seconds"_a, "trial"_a = nb::none(), Release(),
          "Waits at most so long until nothing can go on, or a trial has ended or is paused. "
          "Returns whether the wait is over.")
      .def(
          "finish", [](PythonSession& self) { self->finish(); }, Release(),
          "Waits, then stops what is paused.")
      .def(
          "stop_all", [](PythonSession& self) { self->stop(); }, Release(),
          "Stops all trials; their state is saved if they have checkpoints.")
      .def("events", &events, "since"_a, "wait_s"_a, Release(),
           "The events after number `since`, as JSON.")
      .def(
          "result", [](const PythonSession& self) { return self->result(); }, Release(),
          "The result so far.")
      .def("add_device", &add_device, "document"_a, Release(), "Adds a device.")
      .def(
          "remove_device", [](PythonSession& self, int device) { self->remove_device(device); },
          "device"_a, Release(), "Removes a device.");
}

void bind_trials(nb::class_<PythonSession>& session) {
  const auto by_number = [](auto function) {
    return [function](PythonSession& self, std::uint32_t trial) {
      (self.operator->()->*function)(JobId(trial));
    };
  };
  session
      .def("submit", &submit, "model"_a, "data"_a, "document"_a, "name"_a, "client_id"_a, "until"_a,
           "checkpoint_dir"_a, "weights_file"_a, Release(), "Submits a trial.")
      .def(
          "plan",
          [](const PythonSession& self, std::uint32_t trial) { return self->plan(JobId(trial)); },
          "trial"_a, Release(), "The plan of a trial.")
      .def("search", &search, "trial"_a, "path"_a, "proposals"_a, "seed"_a, Release(),
           "Searches for a strategy and writes it.")
      .def("stop", by_number(nb::overload_cast<JobId>(&Session::stop)), "trial"_a, Release(),
           "Stops a trial.")
      .def("pause", by_number(&Session::pause), "trial"_a, Release(), "Pauses a trial.")
      .def("resume", by_number(&Session::resume), "trial"_a, Release(), "Continues a trial.")
      .def(
          "extend",
          [](PythonSession& self, std::uint32_t trial, std::int64_t until) {
            self->extend(JobId(trial), until);
          },
          "trial"_a, "until"_a, Release(), "Moves the step at which a trial waits.")
      .def(
          "set",
          [](PythonSession& self, std::uint32_t trial, std::optional<double> learning_rate,
             std::optional<double> weight_decay, std::optional<double> max_grad_norm) {
            return self->set(JobId(trial), values_of(learning_rate, weight_decay, max_grad_norm));
          },
          "trial"_a, "learning_rate"_a = nb::none(), "weight_decay"_a = nb::none(),
          "max_grad_norm"_a = nb::none(), Release(),
          "Changes values from the next commit on; returns the number of steps before.")
      .def("clone", &clone, "trial"_a, "name"_a, "client_id"_a, "learning_rate"_a = nb::none(),
           "weight_decay"_a = nb::none(), "max_grad_norm"_a = nb::none(), "max_steps"_a = 0,
           "until"_a = 0, "checkpoint_dir"_a = "", "weights_file"_a = "", Release(),
           "Submits a copy that begins from the newest commit.")
      .def(
          "resize",
          [](PythonSession& self, std::uint32_t trial, int lanes) {
            self->resize(JobId(trial), lanes);
          },
          "trial"_a, "data_parallel"_a, Release(),
          "Sets the number of devices that compute a step.")
      .def("weights", &weights, "trial"_a, Release(), "(name, tensor) of each weight.")
      .def(
          "evaluate",
          [](PythonSession& self, std::uint32_t trial, const PythonData& data) {
            return self->evaluate(JobId(trial), data.split->train);
          },
          "trial"_a, "data"_a, Release(), "Mean loss and metrics on other samples.")
      .def(
          "predict",
          [](PythonSession& self, std::uint32_t trial, const PythonData& data) {
            return self->predict(JobId(trial), data.split->train);
          },
          "trial"_a, "data"_a, Release(), "What the model computes before its loss, by sample.");
}

}  // namespace

void bind_session(nb::module_& module) {
  nb::class_<PythonSession> session(module, "Session", "Trials on shared devices.");
  session.def(nb::init<const std::string&>(), "document"_a, Release());
  bind_life(session);
  bind_trials(session);
}

}  // namespace spillway::python
