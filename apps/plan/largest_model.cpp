#include "apps/plan/largest_model.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "apps/plan/planned_times.h"
#include "core/base/config_check.h"
#include "runs/folder/prepare.h"

namespace spillway {
namespace {

constexpr int kLargestScale = 512;

/// The models of a family are one line, from small to large.
std::vector<std::string> model_of(const RunConfig& config, int scale) {
  constexpr int kHead = 64, kWidth = 64, kChannels = 8;
  constexpr double kWidthSteps = 16;
  if (config.family == ModelFamily::mlp)
    return {fmt::format("model.hidden_size={}", kWidth * scale)};
  if (config.family == ModelFamily::rnn)
    return {fmt::format("model.hidden_size={}", kWidth * scale), "model.embedding_size=0"};
  if (config.family == ModelFamily::resnet) {
    const auto& sizes = config.resnet.hidden_sizes;
    std::vector<std::int64_t> scaled;  // in the proportions of the file
    for (const std::int64_t size : sizes)
      scaled.push_back(std::max<std::int64_t>(1, size * kChannels * scale / sizes.front()));
    return {fmt::format("model.hidden_sizes=[{}]", fmt::join(scaled, ", "))};
  }
  if (config.family == ModelFamily::cnn)
    return {fmt::format("model.width_mult={}", scale / kWidthSteps)};
  return {fmt::format("model.num_hidden_layers={}", scale),
          fmt::format("model.hidden_size={}", kHead * scale),
          fmt::format("model.num_attention_heads={}", scale), "model.intermediate_size=0"};
}

/// Plans models of different scales.
class ModelSearch {
 public:
  ModelSearch(const PlanInput& input, double most_step_s)
      : input_(input), most_step_s_(most_step_s) {
    Findings findings;
    config_ = read_trials(input.config_file, input.overrides, findings).front().config;
    findings.throw_if_any();
    if (config_.family == ModelFamily::torch) {
      throw ConfigError("model.family", 0,
                        "is torch, whose file has one size of model; plan without --largest");
    }
    if (config_.family == ModelFamily::cnn && config_.cnn.preset == CnnPreset::none) {
      throw ConfigError(
          "model.layers", 0,
          "are a model of one size; choose a model.preset, or plan without --largest");
    }
  }

  LargestModel find() {
    const int estimated = largest(1, /*estimate=*/true);
    const int found =
        input_.estimate ? estimated : largest(std::max(1, estimated), /*estimate=*/false);
    return {model_of(config_, std::max(1, found)), plans_};
  }

 private:
  /// The largest scale that fits, 0 if none does. It moves away from `guess` in growing steps until
  /// one scale fits and a larger one does not, and then halves what lies between.
  int largest(int guess, bool estimate) {
    int low = 0, high = kLargestScale + 1, next = guess;
    for (int stride = 1; low < next && next < high; stride *= 2) {
      const bool is_low = fits(next, estimate);
      (is_low ? low : high) = next;
      if (low > 0 && high <= kLargestScale) break;
      next = is_low ? std::min(next + stride, kLargestScale) : std::max(next - stride, 1);
    }
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (fits(middle, estimate) ? low : high) = middle;
    }
    return low;
  }

  bool fits(int scale, bool estimate) {
    ++plans_;
    PlanInput input = input_;
    input.estimate = estimate;
    for (const std::string& each : model_of(config_, scale)) input.overrides.push_back(each);
    try {
      PlannedRun run = plan_run(input);
      if (!run.fits()) return false;
      if (most_step_s_ >= kAnySpeed) return true;
      const RunResult result = run.simulate(kQuickOps);
      return times_of(run, result).step_s <= most_step_s_;
    } catch (const DoesNotFit&) {  // early stopping needs all homes at once
      return false;
    } catch (const ConfigErrors&) {  // such a model is too large for any machine
      if (scale == 1) throw;
      return false;
    }
  }

  const PlanInput& input_;
  const double most_step_s_;
  RunConfig config_;
  int plans_ = 0;
};

}  // namespace

LargestModel find_largest_model(const PlanInput& input, double most_step_s) {
  return ModelSearch(input, most_step_s).find();
}

}  // namespace spillway
