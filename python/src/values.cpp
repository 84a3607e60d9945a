#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/module.h"
#include "spillway/results.h"
#include "spillway/strategy_search.h"
#include "spillway/trial_plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace spillway::python {

/// Plans and results, with the names of the C++ API.
void bind_values(nb::module_& module) {
  nb::class_<TrialPlan>(module, "TrialPlan", "What is known about a trial before it trains.")
      .def_ro("num_shards", &TrialPlan::num_shards, "Pieces into which the model is cut.")
      .def_ro("shards", &TrialPlan::shards, "First and last layer of each.")
      .def_ro("order", &TrialPlan::order, "shard_major or vn_major.")
      .def_ro("data_parallel", &TrialPlan::lanes, "Devices that compute a step together.")
      .def_ro("declined", &TrialPlan::declined, "Why devices are left out, a sentence for each.")
      .def_ro("host_bytes", &TrialPlan::home_bytes, "Host memory of the trial alone.")
      .def_ro("shared_bytes", &TrialPlan::shared_bytes,
              "Host memory that it shares with trials of the same frozen parameters.")
      .def_ro("smallest_budget_bytes", &TrialPlan::smallest_budget_bytes,
              "The smallest device budget that fits.")
      .def_ro("load_ahead_budget_bytes", &TrialPlan::load_ahead_budget_bytes,
              "Device budget from which shards load while others compute; 0: nothing spills.")
      .def_ro("training_state_bytes", &TrialPlan::training_state_bytes,
              "Weights, gradients and optimizer state.")
      .def_ro("checkpoint_bytes", &TrialPlan::checkpoint_bytes,
              "Most bytes of its checkpoints on disk.")
      .def_ro("compute_s_per_step", &TrialPlan::compute_s_per_step,
              "Seconds of a step on one device, as measured.");

  nb::class_<StepCost>(module, "StepCost", "The cost of a training step, simulated.")
      .def_ro("step_s", &StepCost::step_s, "Seconds from one commit to the next.")
      .def_ro("to_device_bytes", &StepCost::to_device, "Copied from the host in a step.")
      .def_ro("to_host_bytes", &StepCost::to_host, "Copied to the host.")
      .def_ro("between_devices_bytes", &StepCost::between_devices, "From one device to another.");

  nb::class_<PricedStrategy>(module, "PricedStrategy", "A strategy and its cost.")
      .def_ro("name", &PricedStrategy::name, "Such as: pipeline of 4.")
      .def_prop_ro(
          "has_strategy", [](const PricedStrategy& priced) { return priced.strategy.has_value(); },
          "False: data parallelism without a strategy.")
      .def_ro("data_parallel", &PricedStrategy::data_parallel,
              "Without a strategy: devices that compute a step together.")
      .def_ro("cost", &PricedStrategy::cost, "None: it does not fit.");

  nb::class_<SearchResult>(module, "SearchResult", "What a search has found.")
      .def_ro("known", &SearchResult::known, "Data parallelism and well-known strategies.")
      .def_ro("best", &SearchResult::best, "The fastest of all.")
      .def_ro("simulated", &SearchResult::simulated, "Different strategies that were simulated.");

  nb::class_<TrialResult>(module, "TrialResult", "What became of a trial.")
      .def_ro("name", &TrialResult::name, "Its name.")
      .def_prop_ro(
          "state", [](const TrialResult& result) { return to_string(result.state); },
          "waiting, paused, running, done, failed, stopped or stopped early.")
      .def_ro("reason", &TrialResult::reason, "Why it failed or was stopped early.")
      .def_ro("parameters", &TrialResult::parameters, "Number of weights.")
      .def_ro("num_shards", &TrialResult::num_shards, "Pieces into which the model is cut.")
      .def_ro("virtual_nodes", &TrialResult::virtual_nodes, "Per step.")
      .def_ro("data_parallel", &TrialResult::lanes, "Devices that compute a step together.")
      .def_ro("steps", &TrialResult::steps, "Committed steps.")
      .def_ro("first_loss", &TrialResult::first_loss, "Loss of the first step.")
      .def_ro("final_loss", &TrialResult::final_loss, "Loss of the last committed step.")
      .def_ro("eval_loss", &TrialResult::eval_loss, "Loss of the last evaluation.")
      .def_ro("metrics", &TrialResult::metrics, "Of the last evaluation, by name.")
      .def_ro("tokens_per_s", &TrialResult::tokens_per_s, "Over the run.")
      .def_ro("weights_xxh3", &TrialResult::weights_xxh3, "XXH3-128 of the final weights.")
      .def_ro("training_state_bytes", &TrialResult::training_state_bytes,
              "Weights, gradients and optimizer state.")
      .def_ro("losses", &TrialResult::losses, "One per committed step.")
      .def_ro("gradient_norms", &TrialResult::gradient_norms, "One per committed step.")
      .def_ro("eval_losses", &TrialResult::eval_losses, "(step, loss) of each evaluation.")
      .def_ro("eval_metrics", &TrialResult::eval_metrics, "(step, metrics) of each evaluation.");

  nb::class_<DeviceResult>(module, "DeviceResult", "What a device did.")
      .def_ro("kind", &DeviceResult::kind, "cpu or cuda.")
      .def_ro("budget_bytes", &DeviceResult::budget_bytes, "Most bytes that it may hold.")
      .def_ro("peak_bytes", &DeviceResult::peak_bytes, "Most bytes held.")
      .def_ro("busy_share", &DeviceResult::busy_share, "Of the run's time, 0 to 1.")
      .def_ro("h2d_bytes", &DeviceResult::h2d_bytes, "Bytes copied from the host.")
      .def_ro("d2h_bytes", &DeviceResult::d2h_bytes, "Bytes copied to the host.")
      .def_ro("kept_graphs", &DeviceResult::kept_graphs, "Backward ops that recomputed nothing.");

  nb::class_<RunResult>(module, "RunResult", "What a session did so far.")
      .def_ro("trials", &RunResult::trials, "In order of submission.")
      .def_ro("devices", &RunResult::devices, "In order of their numbers.")
      .def_ro("host_peak_bytes", &RunResult::host_peak_bytes,
              "Most bytes of training state in host memory.")
      .def_ro("h2d_weight_bytes", &RunResult::h2d_weight_bytes, "Weights copied to devices.")
      .def_ro("h2d_shared_bytes", &RunResult::h2d_shared_bytes,
              "Those of them that trials share: frozen parameters of the same bytes.")
      .def_ro("copy_hidden_share", &RunResult::copy_hidden_share,
              "Part of the copies' time in which their device computed; None without copies.")
      .def_ro("wall_s", &RunResult::wall_s, "Seconds of the latest run.");

  nb::class_<Evaluation>(module, "Evaluation", "A trial on other data.")
      .def_ro("loss", &Evaluation::loss, "Mean over all samples.")
      .def_ro("metrics", &Evaluation::metrics, "By name.");
}

}  // namespace spillway::python
