#include "spillway/contract.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "trainer/config/kernel_variables.h"

namespace spillway {
namespace {

std::optional<std::string> value_of(const Contract& contract, const std::string& field) {
  const auto found = contract.find(field);
  return found == contract.end() ? std::nullopt : std::optional(found->second);
}

bool is_fingerprint(const ContractDifference& difference) {
  return difference.field.starts_with(kFingerprint);
}

bool is_of_device(const ContractDifference& difference) { return difference.field == "device"; }

/// What only one of the two programs notes.
bool cannot_be_compared(const ContractDifference& difference) {
  const bool is_noted_by_some = is_fingerprint(difference) || difference.field == kFrozenParameters;
  return is_noted_by_some && !(difference.then && difference.now);
}

std::string remedy_of_device() {
  return "use the original value of numerics, on the original kind of device; only portable "
         "numerics continue on other processors";
}

std::string remedy_of_kernels(bool has_device) {
  const auto variables = kernel_variables();
  return fmt::format(
      "these operations compute other bits here, because the processor, a library, a process flag "
      "or an environment variable selects other kernels ({}); {}",
      variables.empty() ? "no variable known to do so is set here"
                        : fmt::format("set here: {}", fmt::join(variables, ", ")),
      has_device ? remedy_of_device() : "continue on a machine that computes the original bits");
}

std::string remedy_of(const std::vector<ContractDifference>& differences) {
  const bool has_device = std::ranges::any_of(differences, is_of_device);
  if (std::ranges::any_of(differences, is_fingerprint)) return remedy_of_kernels(has_device);
  if (has_device) return remedy_of_device();
  if (differences.size() == 1 && differences[0].field == "data") {
    return "the files of data.path, or the way they are read, have changed; restore them";
  }
  if (differences.size() == 1 && differences[0].field == "sweep.early_terminate") {
    return "use the original value; without 'by eval_loss' it compares training losses, as with "
           "sweep.metric.name=final_loss";
  }
  return "use the original values";
}

}  // namespace

std::vector<ContractDifference> differences(const Contract& then, const Contract& now) {
  Contract all = then;
  all.insert(now.begin(), now.end());
  std::vector<ContractDifference> found;
  for (const auto& [field, value] : all) {
    ContractDifference difference{field, value_of(then, field), value_of(now, field)};
    if (difference.then == difference.now || cannot_be_compared(difference)) continue;
    found.push_back(std::move(difference));
  }
  return found;
}

std::string to_string(const ContractDifference& difference) {
  return fmt::format("{}: was {}, is {}", difference.field, difference.then.value_or("not set"),
                     difference.now.value_or("not set"));
}

std::string explain(const std::vector<ContractDifference>& differences) {
  std::string text;
  for (const ContractDifference& field : differences) text += "\n  " + to_string(field);
  return text + "\n" + remedy_of(differences);
}

}  // namespace spillway
