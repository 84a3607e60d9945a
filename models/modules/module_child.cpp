#include "models/modules/module_child.h"

#include <fmt/format.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>

#include <exception>
#include <sstream>
#include <typeinfo>

#include "models/base/reason.h"
#include "models/modules/seeded_generator.h"
#include "spillway/error.h"

namespace spillway {
namespace {

template <typename... Types>
bool is_any(const torch::nn::Module& module) {
  return ((module.as<Types>() != nullptr) || ...);
}

bool is_dropout(const torch::nn::Module& module) {
  using namespace torch::nn;
  return is_any<Dropout, Dropout2d, Dropout3d, AlphaDropout, FeatureAlphaDropout>(module);
}

}  // namespace

std::string ModuleChild::kind() const {
  std::ostringstream text;
  text << name_ << ": " << *module_.ptr();
  for (const auto& part : module_.ptr()->modules()) {
    const torch::nn::Module& module = *part;
    text << "; " << c10::demangle(typeid(module).name());
  }
  return text.str();
}

void ModuleChild::reject(const std::string& problem) const {
  throw ConfigError("model", 0,
                    fmt::format("child '{}' ({}) {}", name_, module_.ptr()->name(), problem));
}

void ModuleChild::check(std::set<const void*>& seen) const {
  for (const auto& part : module_.ptr()->modules()) {
    if (is_dropout(*part) && !dropout()) {
      reject(
          "has dropout, which is supported only as a torch::nn::Dropout that is a child by "
          "itself, with p below 1; split the module there, or remove it");
    }
  }
  const ModuleStatistics known = statistics();
  for (const auto& buffer : module_.ptr()->named_buffers()) {
    if (known.contains(buffer.key())) continue;
    reject(
        fmt::format("has the buffer '{}', which is no running statistic of a "
                    "torch::nn::BatchNorm; remove it, or turn it off",
                    buffer.key()));
  }
  for (const auto& param : parameters()) check_parameter(param.key(), param.value(), seen);
}

std::optional<double> ModuleChild::dropout() const {
  const auto* dropout = module_.ptr()->as<torch::nn::Dropout>();
  if (dropout == nullptr || static_cast<float>(dropout->options.p()) >= 1) return std::nullopt;
  return dropout->options.p();
}

std::optional<std::int64_t> ModuleChild::num_embeddings() const {
  if (const auto* rows = module_.ptr()->as<torch::nn::Embedding>())
    return rows->options.num_embeddings();
  if (const auto* rows = module_.ptr()->as<torch::nn::EmbeddingBag>())
    return rows->options.num_embeddings();
  return std::nullopt;
}

void ModuleChild::check_parameter(const std::string& name, const at::Tensor& value,
                                  std::set<const void*>& seen) const {
  if (value.scalar_type() != at::kFloat || !value.is_cpu() || value.layout() != at::kStrided) {
    reject(fmt::format("has the parameter '{}', which is no float32 tensor of the CPU; make it one",
                       name));
  }
  if (!seen.insert(value.storage().unsafeGetStorageImpl()).second) {
    reject(
        fmt::format("has the parameter '{}', whose memory another one has too; tied parameters "
                    "are not supported here yet",
                    name));
  }
}

at::Tensor ModuleChild::run(const at::Tensor& input) {
  at::Tensor x = input.detach().clone();
  if (x.is_floating_point()) x.requires_grad_();
  const at::Tensor random = SeededGenerator::state();
  const auto before = versions(x), forwards = forwards_of_norms();
  module_.ptr()->train();
  const at::Tensor y = forward(x);
  if (!random.equal(SeededGenerator::state())) {
    reject("draws random numbers in training, which is not supported here yet");
  }
  if (versions(x) != before) reject("changes its input or a parameter; do not work in place");
  check_statistics(forwards);
  check_output(x, y);
  return y.detach();
}

at::Tensor ModuleChild::forward(const at::Tensor& x) {
  const std::string problem = "must take one tensor, as the child before gives it, and give one: ";
  try {
    return module_.forward(at::Tensor(x));
  } catch (const std::exception& error) {
    reject(problem + reason_of(error));
  }
}

std::vector<std::int64_t> ModuleChild::forwards_of_norms() const {
  std::vector<std::int64_t> counts;
  const ModuleStatistics known = statistics();
  for (const ModuleStatistics::Statistic& statistic : known.all()) {
    if (statistic.spec.kind != StatisticSpec::Kind::count) continue;
    counts.push_back(statistic.buffer.item<std::int64_t>());
  }
  return counts;
}

void ModuleChild::check_statistics(const std::vector<std::int64_t>& before) const {
  std::vector<std::int64_t> after = forwards_of_norms();
  for (std::int64_t& count : after) --count;
  if (after != before) reject("must run each of its batch norms once in a forward");
}

void ModuleChild::check_output(const at::Tensor& input, const at::Tensor& output) const {
  if (!output.defined() || output.scalar_type() != at::kFloat || output.dim() == 0 ||
      output.size(0) != kProbe || output.numel() == 0) {
    reject("must give a float32 tensor whose first dimension is the batch");
  }
  if (input.requires_grad() && !output.requires_grad()) {
    reject("gives an output from which no gradient leads back to its input");
  }
}

std::vector<std::int64_t> ModuleChild::versions(const at::Tensor& x) const {
  std::vector<std::int64_t> all{static_cast<std::int64_t>(x._version())};
  for (const at::Tensor& param : module_.ptr()->parameters()) {
    all.push_back(static_cast<std::int64_t>(param._version()));
  }
  return all;
}

std::vector<ModuleChild> children_of(torch::nn::Sequential model) {
  if (model.is_empty() || model->is_empty()) {
    throw ConfigError("model", 0, "is a Sequential without children; add some");
  }
  std::vector<ModuleChild> children;
  auto module = model->begin();
  for (const auto& child : model->named_children()) children.emplace_back(child.key(), *module++);
  return children;
}

}  // namespace spillway
