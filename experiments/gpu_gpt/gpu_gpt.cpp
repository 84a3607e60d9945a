#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/os/host_memory.h"
#include "experiments/gpu_gpt/resident.h"
#include "experiments/support/spread.h"
#include "experiments/support/trained.h"
#include "spillway/error.h"
#include "spillway/model.h"
#include "trainer/profile/machine.h"

/// A GPT on a GPU that holds a part of it: step time, bytes, and the limiting resource.
namespace spillway::experiments {
namespace {

constexpr int kNoGpu = 77;

struct Setting {
  std::string name;
  DeviceKind kind = DeviceKind::cuda;
  GptConfig model;
  Bytes budget = 0, ample = 0;
  std::int64_t vn_samples = 2;
  std::vector<int> virtual_nodes;
  int steps = 6;
  int models_in_turn = 4;  ///< 0: not tried
};

GptConfig gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
              std::int64_t positions = 1024, std::int64_t vocab = 50304) {
  return {.vocab_size = vocab,
          .num_hidden_layers = layers,
          .hidden_size = hidden,
          .num_attention_heads = heads,
          .max_position_embeddings = positions,
          .dropout = 0};
}

/// The time that a step would take for each resource alone.
struct Bounds {
  double link_s = 0, product_s = 0, update_s = 0;
  double most() const { return std::max({link_s, product_s, update_s}); }
  const char* name() const {
    if (most() == product_s) return "products";
    return most() == link_s ? "link" : "updates";
  }
};

class Experiment {
 public:
  Experiment(Setting setting, const Machine& machine, const PilotCache& costs)
      : setting_(std::move(setting)), machine_(machine), costs_(costs) {
    weights_ =
        static_cast<double>(make_gpt(setting_.model, setting_.vn_samples)->spec.num_parameters());
  }

  void print_rows() {
    for (const int virtual_nodes : setting_.virtual_nodes) {
      const double resident_s = or_none([&] {
        return run(setting_.ample, OrderChoice::vn_major, virtual_nodes, /*clip=*/1, 1).step_s;
      });
      for (const double clip : {1.0, 0.0}) print_row_of(virtual_nodes, clip, resident_s);
    }
    if (setting_.models_in_turn > 1) print_models_in_turn();
  }

  /// Text for below the table.
  const std::string& sentences() const { return sentences_; }

 private:
  SessionConfig session(Bytes budget) const {
    SessionConfig config{.activation_share = 0.5,
                         .host_memory = host_memory().available / 10 * 9,
                         .pilot_cache = costs_.path(),
                         .max_trace_spans = 100'000};
    config.devices.push_back({.kind = setting_.kind, .memory = budget});
    return config;
  }

  TrialConfig trial(OrderChoice order, int virtual_nodes, double clip) const {
    TrialConfig trial = gpt_trial(setting_.model);
    trial.train.batch_size = setting_.vn_samples * virtual_nodes;
    trial.train.virtual_nodes = virtual_nodes;
    trial.train.reduction_groups = 1;
    trial.train.max_steps = setting_.steps;
    trial.train.max_grad_norm = clip;
    trial.train.dtype = trial.train.gradient_dtype = FloatType::bf16;
    trial.train.order = order;
    return trial;
  }

  Trained run(Bytes budget, OrderChoice order, int virtual_nodes, double clip, int models) const {
    std::vector<TrialConfig> trials;
    for (int i = 0; i < models; ++i) {
      trials.push_back(trial(order, virtual_nodes, clip));
      trials.back().name += std::to_string(i);
      trials.back().train.seed += static_cast<std::uint64_t>(i);
    }
    return train(session(budget), trials);
  }

  /// 0, with the reason, if it does not fit.
  double or_none(const std::function<double()>& seconds) {
    const auto leave_out = [&](const std::exception& error) {
      sentences_ += "- " + setting_.name + ": " + error.what() + "\n";
      return 0.0;
    };
    try {
      return seconds();
    } catch (const OutOfMemory& error) {
      return leave_out(error);
    } catch (const DoesNotFit& error) {
      return leave_out(error);
    }
  }

  static std::string ratio(double resident_s, double step_s) {
    return resident_s > 0 ? fixed(resident_s / step_s, 3) : "does not fit";
  }

  Bounds bounds(const Trained& trained, double tokens) const {
    const auto found = std::ranges::find_if(machine_.devices, [&](const MachineDevice& device) {
      return device.kind.starts_with(to_string(setting_.kind));
    });
    const double bytes =
        static_cast<double>(trained.result.h2d_bytes + trained.result.d2h_bytes) / setting_.steps;
    return {.link_s = bytes / found->duplex_bytes_per_s,
            .product_s = 8 * weights_ * tokens / found->bf16_flops_per_s,
            .update_s = 4 * weights_ / machine_.update_bytes_per_s};
  }

  /// Layers of each shard, from the span names of a plan.
  static std::vector<LayerRange> ranges_of(const TrialPlan& plan, const ModelSpec& model) {
    std::vector<LayerRange> ranges;
    for (const std::string& shard : plan.shards) {
      const std::string first = shard.substr(0, shard.find(" - "));
      const auto layer = std::ranges::find(model.layers, first, &LayerSpec::name);
      const auto begin = static_cast<int>(layer - model.layers.begin());
      if (!ranges.empty()) ranges.back().end = begin;
      ranges.push_back({begin, static_cast<int>(model.layers.size())});
    }
    return ranges;
  }

  /// A step of the same work with all state on the device. Throws Error if the losses differ.
  double resident_step_s(const Trained& trained, int virtual_nodes, double clip) {
    const auto model = make_gpt(setting_.model, setting_.vn_samples);
    Resident resident(trial(OrderChoice::shard_major, virtual_nodes, clip),
                      ranges_of(trained.plan, model->spec), setting_.kind,
                      // That of the unit with the largest need; the loss may need more.
                      2 * trained.plan.unit_activations_bytes);
    const double step_s = resident.run(), loss = trained.result.trials[0].losses.back();
    if (std::abs(resident.loss() - loss) > 0.02 * loss) {
      throw Error("resident, the last loss is " + std::to_string(resident.loss()) + ", spilled " +
                  std::to_string(loss));
    }
    return step_s;
  }

  void print_row_of(int virtual_nodes, double clip, double resident_s) {
    const auto tokens = static_cast<double>(setting_.vn_samples * virtual_nodes *
                                            setting_.model.max_position_embeddings);
    or_none([&] {
      const Trained trained =
          run(setting_.budget, OrderChoice::shard_major, virtual_nodes, clip, 1);
      const DeviceResult& device = trained.result.devices[0];
      const Bounds bound = bounds(trained, tokens);
      const double recomputing_s =
          or_none([&] { return resident_step_s(trained, virtual_nodes, clip); });
      print_row({setting_.name, with_commas(tokens), clip > 0 ? "yes" : "no",
                 std::to_string(trained.plan.num_shards), fixed(trained.step_s, 3),
                 fixed(6 * weights_ * tokens / trained.step_s / 1e12, 2),
                 fixed(100 * trained.result.copy_hidden_share.value_or(1), 1) + " %",
                 format_bytes(device.peak_bytes) + " of " + format_bytes(device.budget_bytes),
                 ratio(recomputing_s, trained.step_s), ratio(resident_s, trained.step_s),
                 fixed(bound.link_s, 3), fixed(bound.product_s, 3), fixed(bound.update_s, 3),
                 bound.name(), fixed(bound.most() / trained.step_s, 2)});
      std::fflush(stdout);
      return trained.step_s;
    });
  }

  /// The same work, one model after the other, or all of them sharing the device.
  void print_models_in_turn() {
    const int virtual_nodes = setting_.virtual_nodes.front(), models = setting_.models_in_turn;
    or_none([&] {
      const double one =
          run(setting_.budget, OrderChoice::shard_major, virtual_nodes, 1, 1).result.wall_s;
      const double all =
          run(setting_.budget, OrderChoice::shard_major, virtual_nodes, 1, models).result.wall_s;
      sentences_ += "- " + std::to_string(models) + " models of " + setting_.name +
                    " in one session: " + fixed(all, 1) + " s, one alone " + fixed(one, 1) +
                    " s: " + fixed(all / one, 2) + " times\n";
      return all;
    });
  }

  const Setting setting_;
  const Machine& machine_;
  const PilotCache& costs_;
  double weights_ = 0;
  std::string sentences_;
};

/// `only`: the setting of this name; empty: all.
int run(bool brief, std::string_view only) {
  const Machine machine = inspect_machine();
  std::vector<Setting> settings{{.name = "1.3B",
                                 .model = gpt(24, 2048, 16),
                                 .budget = 4_GiB,
                                 .ample = 64_GiB,
                                 .virtual_nodes = {8, 16}},
                                {.name = "6.7B",
                                 .model = gpt(32, 4096, 32),
                                 .budget = 24_GiB,
                                 .ample = 100_GiB,
                                 .virtual_nodes = {8, 16},
                                 .models_in_turn = 0}};
  if (brief) {
    settings = {{.name = "small",
                 .kind = machine.gpus.gpus.empty() ? DeviceKind::cpu : DeviceKind::cuda,
                 .model = gpt(4, 32, 2, 16, 64),
                 .budget = 400_KiB,
                 .ample = 64_MiB,
                 .virtual_nodes = {4},
                 .steps = 4,
                 .models_in_turn = 2}};
  } else if (machine.gpus.gpus.empty()) {
    std::printf("no GPU to measure: %s\n", machine.gpus.why_none.c_str());
    return kNoGpu;
  }
  print_head({"weights", "tokens a step", "clipping", "shards", "step, s", "useful TFLOP/s",
              "copies hidden", "peak", "of resident, recomputing", "of resident", "link, s",
              "products, s", "updates, s", "binds", "reached"});
  const PilotCache costs("spillway_gpu_gpt");
  std::string sentences;
  for (const Setting& setting : settings) {
    if (!only.empty() && setting.name != only) continue;
    Experiment experiment(setting, machine, costs);
    experiment.print_rows();
    sentences += experiment.sentences();
  }
  std::printf("\n%s", sentences.c_str());
  return 0;
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  const std::string_view choice = argc > 1 ? argv[1] : "";
  const bool brief = choice == "--brief";
  return spillway::experiments::run(brief, brief ? "" : choice);
}
