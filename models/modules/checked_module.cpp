#include "models/modules/checked_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <typeinfo>

#include "models/base/reason.h"
#include "models/modules/keyed_dropout.h"
#include "models/modules/seeded_generator.h"
#include "spillway/error.h"

namespace spillway {
namespace {

/// Without those whose tensor stands before.
NamedTensors without_repetitions(const torch::OrderedDict<std::string, at::Tensor>& all) {
  NamedTensors unique;
  for (const auto& item : all) {
    const auto is_same = [&](const auto& other) { return other.second.is_same(item.value()); };
    if (std::ranges::none_of(unique, is_same)) unique.emplace_back(item.key(), item.value());
  }
  return unique;
}

/// Numbers that change with the values.
std::vector<std::uint32_t> versions(std::span<const at::Tensor> inputs, const NamedTensors& state) {
  std::vector<std::uint32_t> all;
  for (const at::Tensor& input : inputs) all.push_back(input._version());
  for (const auto& [name, tensor] : state) all.push_back(tensor._version());
  return all;
}

}  // namespace

at::Tensor call(torch::nn::AnyModule& module, std::span<const at::Tensor> inputs) {
  const auto x = [&](std::size_t i) { return at::Tensor(inputs[i]); };
  switch (inputs.size()) {
    case 1:
      return module.forward(x(0));
    case 2:
      return module.forward(x(0), x(1));
    case 3:
      return module.forward(x(0), x(1), x(2));
    case 4:
      return module.forward(x(0), x(1), x(2), x(3));
    default:
      throw Error(fmt::format("a module takes 1 to 4 inputs, not {}", inputs.size()));
  }
}

NamedTensors unique_parameters(const torch::nn::Module& module) {
  return without_repetitions(module.named_parameters());
}

NamedTensors constant_buffers(torch::nn::Module& module) {
  const ModuleStatistics statistics(module);
  NamedTensors buffers = without_repetitions(module.named_buffers());
  std::erase_if(buffers, [&](const auto& buffer) { return statistics.contains(buffer.first); });
  return buffers;
}

at::Tensor run_probe(std::span<const at::Tensor> inputs, const NamedTensors& state,
                     const std::function<at::Tensor(std::span<const at::Tensor>)>& forward,
                     const std::function<void(const std::string&)>& reject) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& input : inputs) {
    copies.push_back(input.detach().clone());
    copies.back().requires_grad_(input.requires_grad());
  }
  const LayerContext context;
  const KeyedDropout keyed(context);
  const at::Tensor random = SeededGenerator::state();
  const auto before = versions(copies, state);
  const at::Tensor output = forward(copies);
  if (!random.equal(SeededGenerator::state())) {
    reject("draws random numbers in training; only dropout (not in place) may do so");
  }
  if (versions(copies, state) != before) {
    reject("changes an input, a parameter or a buffer; do not work in place");
  }
  if (!output.defined() || output.scalar_type() != at::kFloat || output.dim() == 0 ||
      output.size(0) != CheckedModule::kProbe || output.numel() == 0) {
    reject("must give a float32 tensor whose first dimension is the batch");
  }
  return output;
}

CheckedModule::CheckedModule(std::string name, torch::nn::AnyModule module)
    : name_(std::move(name)), module_(std::move(module)) {
  check_parameters();
  check_buffers();
}

std::string CheckedModule::kind() const {
  std::ostringstream text;
  text << name_ << ": " << *module_.ptr();
  for (const auto& part : module_.ptr()->modules()) {
    const torch::nn::Module& module = *part;
    text << "; " << c10::demangle(typeid(module).name());
  }
  return text.str();
}

void CheckedModule::reject(const std::string& problem) const {
  throw ConfigError("model", 0,
                    fmt::format("module '{}' ({}) {}", name_, module_.ptr()->name(), problem));
}

void CheckedModule::check_parameters() const {
  for (const auto& [name, value] : parameters()) {
    if (value.scalar_type() != at::kFloat || !value.is_cpu() || value.layout() != at::kStrided) {
      reject(
          fmt::format("has the parameter '{}', which must be a float32 tensor on the CPU", name));
    }
  }
}

void CheckedModule::check_buffers() const {
  for (const auto& [name, value] : buffers()) {
    const bool is_number = value.scalar_type() == at::kFloat || value.scalar_type() == at::kLong;
    if (is_number && value.is_cpu() && value.layout() == at::kStrided) continue;
    reject(fmt::format("has the buffer '{}', which must be a float32 or int64 tensor on the CPU",
                       name));
  }
}

at::Tensor CheckedModule::run(std::span<const at::Tensor> inputs) {
  ModuleStatistics norms = statistics();
  std::vector<at::Tensor> past;
  for (const auto& statistic : norms.all()) past.push_back(statistic.buffer.clone());
  NamedTensors state = parameters();
  for (auto& buffer : buffers()) state.push_back(std::move(buffer));
  module_.ptr()->train();
  const auto forwards = forwards_of_norms();
  const at::Tensor output = run_probe(
      inputs, state, [this](std::span<const at::Tensor> x) { return forward(x); },
      [this](const std::string& problem) { reject(problem); });
  check_statistics(forwards);
  const auto has_gradient = [](const at::Tensor& input) { return input.requires_grad(); };
  if (std::ranges::any_of(inputs, has_gradient) && !output.requires_grad()) {
    reject("has an output without a gradient path to its input");
  }
  for (std::size_t i = 0; i < past.size(); ++i) norms.all()[i].buffer.set_data(past[i]);
  return output;
}

at::Tensor CheckedModule::forward(std::span<const at::Tensor> inputs) {
  try {
    return call(module_, inputs);
  } catch (const std::exception& error) {
    reject(fmt::format("must take {} tensor{}, as the layers before give {}, and give one: {}",
                       inputs.size(), inputs.size() == 1 ? "" : "s",
                       inputs.size() == 1 ? "it" : "them", reason_of(error)));
  }
}

std::vector<std::int64_t> CheckedModule::forwards_of_norms() const {
  std::vector<std::int64_t> counts;
  const ModuleStatistics known = statistics();
  for (const ModuleStatistics::Statistic& statistic : known.all()) {
    if (statistic.spec.kind != StatisticSpec::Kind::count) continue;
    counts.push_back(statistic.buffer.item<std::int64_t>());
  }
  return counts;
}

void CheckedModule::check_statistics(const std::vector<std::int64_t>& before) const {
  std::vector<std::int64_t> after = forwards_of_norms();
  for (std::int64_t& count : after) --count;
  if (after != before) reject("must run each of its batch norms once in a forward");
}

}  // namespace spillway
