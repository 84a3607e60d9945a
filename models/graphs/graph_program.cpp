#include "models/graphs/graph_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "core/base/xxh3.h"
#include "models/base/batch_norm.h"
#include "models/base/dropout.h"
#include "models/base/reason.h"
#include "spillway/error.h"

namespace spillway {
namespace {

bool checks_graphs() {
  const char* const value = std::getenv("SPILLWAY_CHECK_GRAPHS");
  return value != nullptr && std::string_view(value) == "1";
}

const GraphItem& item_at(const GraphNode& node, std::size_t position) {
  const auto* item = std::get_if<GraphItem>(&node.args[position]);
  if (item == nullptr) throw Error(fmt::format("has a list as argument {}", position));
  return *item;
}

int value_at(const GraphNode& node, std::size_t position, bool may_be_null = false) {
  const GraphItem& item = item_at(node, position);
  if (may_be_null && std::holds_alternative<std::monostate>(item)) return -1;
  const auto* value = std::get_if<GraphValue>(&item);
  if (value == nullptr) throw Error(fmt::format("needs a value as argument {}", position));
  return value->number;
}

double number_at(const GraphNode& node, std::size_t position) {
  const GraphItem& item = item_at(node, position);
  if (const auto* whole = std::get_if<std::int64_t>(&item)) return static_cast<double>(*whole);
  const auto* real = std::get_if<double>(&item);
  if (real == nullptr) throw Error(fmt::format("needs a number as argument {}", position));
  return *real;
}

void require_shape(const GraphNode& node, std::size_t num_args) {
  if (node.args.size() == num_args && node.num_outputs == 1 && node.overload.empty()) return;
  throw Error(fmt::format("must have {} arguments, one output and no overload", num_args));
}

/// Error, with the place, for whatever `work` throws.
template <typename Work>
auto run_at(const std::string& place, const Work& work) {
  try {
    return work();
  } catch (const OutOfMemory&) {
    throw;
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: {}", place, reason_of(error)));
  }
}

std::vector<std::string> hashes_of(std::span<const at::Tensor> tensors) {
  std::vector<std::string> hashes;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor bytes = tensor.detach().cpu().contiguous();
    hashes.push_back(xxh3({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()}));
  }
  return hashes;
}

}  // namespace

GraphProgram::GraphProgram(const ExportedGraph& graph, const Given& given, std::string place)
    : place_(std::move(place)),
      num_given_(given.num_values),
      result_(graph.result),
      checks_(checks_graphs()) {
  for (const GraphNode& node : graph.nodes) {
    const std::string at = fmt::format("{}, node {} ({})", place_, steps_.size(), node.name());
    steps_.push_back(run_at(at, [&] { return step_of(node, given); }));
    steps_.back().place = at;
  }
  check_writes(graph);
  find_last_uses(graph);
}

GraphProgram::Step GraphProgram::step_of(const GraphNode& node, const Given& given) {
  if (node.op == kDropout) return {.place = {}, .call = dropout_of(node), .last_uses = {}};
  if (node.op == "spillway::batch_norm")
    return {.place = {}, .call = batch_norm_of(node, given), .last_uses = {}};
  return {.place = {}, .call = NodeCall(node), .last_uses = {}};
}

GraphProgram::Dropout GraphProgram::dropout_of(const GraphNode& node) {
  const bool has_number = node.args.size() == 3;
  require_shape(node, has_number ? 3 : 2);
  Dropout dropout{.x = value_at(node, 0), .p = number_at(node, 1), .draw = num_draws_++};
  if (has_number) {
    const double number = number_at(node, 2);
    if (!(number >= 0 && number < kMostDropouts))
      throw Error(fmt::format("has number {}, must be from 0 to {}", number, kMostDropouts - 1));
    dropout.draw = static_cast<std::uint32_t>(number);
  }
  if (!(dropout.p >= 0 && static_cast<float>(dropout.p) < 1))
    throw Error(
        fmt::format("drops with probability {}, must be at least 0 and below 1", dropout.p));
  if (num_draws_ > kMostDropouts) {
    throw Error(fmt::format("is dropout number {} of the layer, which may have {}; split the layer",
                            num_draws_, kMostDropouts));
  }
  return dropout;
}

GraphProgram::BatchNorm GraphProgram::batch_norm_of(const GraphNode& node, const Given& given) {
  require_shape(node, 6);
  const BatchNorm norm{.x = value_at(node, 0),
                       .weight = value_at(node, 1, /*may_be_null=*/true),
                       .bias = value_at(node, 2, /*may_be_null=*/true),
                       .mean = value_at(node, 3),
                       .variance = value_at(node, 4),
                       .eps = number_at(node, 5)};
  for (const int statistic : {norm.mean, norm.variance}) {
    if (std::ranges::count(given.statistics, statistic) == 0)
      throw Error(fmt::format("observes value {}, which is no averaged statistic", statistic));
    if (std::ranges::count(observed_, statistic) > 0)
      throw Error(fmt::format("observes value {} a second time", statistic));
    observed_.push_back(statistic);
  }
  return norm;
}

std::vector<int> GraphProgram::reads_of(const Step& step) {
  if (const auto* call = std::get_if<NodeCall>(&step.call)) return call->reads();
  if (const auto* dropout = std::get_if<Dropout>(&step.call)) return {dropout->x};
  const auto& norm = std::get<BatchNorm>(step.call);
  std::vector<int> reads{norm.x, norm.mean, norm.variance};
  for (const int optional : {norm.weight, norm.bias}) {
    if (optional >= 0) reads.push_back(optional);
  }
  return reads;
}

void GraphProgram::find_last_uses(const ExportedGraph& graph) {
  int next = num_given_;
  std::vector<std::size_t> last(static_cast<std::size_t>(num_given_), 0);
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    for (const int value : reads_of(steps_[s])) last[static_cast<std::size_t>(value)] = s;
    next += graph.nodes[s].num_outputs;
    last.resize(static_cast<std::size_t>(next), s);
  }
  for (int value = 0; value < next; ++value) {
    const std::size_t step = last[static_cast<std::size_t>(value)];
    if (value != result_ && !steps_.empty()) steps_[step].last_uses.push_back(value);
  }
}

/// A value is borrowed if its memory may be that of what the layer gets.
void GraphProgram::check_writes(const ExportedGraph& graph) const {
  std::vector<bool> borrowed(static_cast<std::size_t>(num_given_), true);
  const auto any = [&](const std::vector<int>& values) {
    return std::ranges::any_of(
        values, [&](int value) { return borrowed[static_cast<std::size_t>(value)]; });
  };
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    const auto* call = std::get_if<NodeCall>(&steps_[s].call);
    if (call != nullptr && any(call->writes())) {
      throw Error(steps_[s].place +
                  ": writes to an input, parameter or constant of the layer, or to a view of one; "
                  "use the operator that makes a new tensor");
    }
    const bool passes =
        std::holds_alternative<Dropout>(steps_[s].call);  // its input, in evaluation
    const bool is_view = call != nullptr ? any(call->views()) : passes && any(reads_of(steps_[s]));
    borrowed.resize(borrowed.size() + static_cast<std::size_t>(graph.nodes[s].num_outputs),
                    is_view);
  }
}

void GraphProgram::run_step(const Step& step, std::vector<at::Tensor>& values,
                            const LayerContext& context, c10::Device device,
                            std::vector<at::Tensor>& observations) const {
  const auto value = [&](int number) {
    return number >= 0 ? values[static_cast<std::size_t>(number)] : at::Tensor();
  };
  if (const auto* call = std::get_if<NodeCall>(&step.call)) return call->run(values, device);
  if (const auto* drop = std::get_if<Dropout>(&step.call)) {
    const at::Tensor x = value(drop->x);
    if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16)
      throw Error(
          fmt::format("gets {}, must get float32 or bfloat16", c10::toString(x.scalar_type())));
    values.push_back(dropout(x, drop->p, context, drop->draw));
    return;
  }
  const auto& norm = std::get<BatchNorm>(step.call);
  const std::array params{value(norm.weight), value(norm.bias), value(norm.mean),
                          value(norm.variance)};
  values.push_back(batch_norm(value(norm.x), params, norm.eps, context, observations));
}

at::Tensor GraphProgram::run(std::vector<at::Tensor> values, const LayerContext& context,
                             std::vector<at::Tensor>& observations) const {
  const c10::Device device = values.front().device();
  const std::vector<at::Tensor> given = checks_ ? values : std::vector<at::Tensor>();
  const std::vector<std::string> before = hashes_of(given);
  for (const Step& step : steps_) {
    run_at(step.place, [&] { run_step(step, values, context, device, observations); });
    if (checks_ && hashes_of(given) != before) {
      throw Error(step.place + ": changed an input, parameter or constant of the layer");
    }
    for (const int value : step.last_uses) values[static_cast<std::size_t>(value)].reset();
  }
  return values[static_cast<std::size_t>(result_)];
}

}  // namespace spillway
