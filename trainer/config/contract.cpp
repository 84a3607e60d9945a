#include "spillway/contract.h"

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

/// A probe that only one of the two programs has.
bool cannot_be_compared(const ContractDifference& difference) {
  return is_fingerprint(difference) && !(difference.then && difference.now);
}

std::string remedy_of_kernels() {
  std::string variables;
  for (const std::string& each : kernel_variables()) {
    variables += (variables.empty() ? "" : ", ") + each;
  }
  return "these operations give other bits here: another processor, library, process flag or "
         "environment variable chooses other kernels (" +
         (variables.empty() ? "no variable known to do so is set here" : "set here: " + variables) +
         "); go on where they give the bits that they gave";
}

std::string remedy_of(const std::vector<ContractDifference>& differences) {
  if (std::ranges::any_of(differences, is_fingerprint)) return remedy_of_kernels();
  if (differences.size() == 1 && differences[0].field == "data") {
    return "the files of data.path, or how they are read, changed since; put them back as they "
           "were";
  }
  if (differences.size() == 1 && differences[0].field == "sweep.early_terminate") {
    return "go on with what it was; without 'by eval_loss' it compares training losses, as with "
           "sweep.metric.name=final_loss";
  }
  return "go on with what it was";
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
  return difference.field + ": was " + difference.then.value_or("not there") + ", is " +
         difference.now.value_or("not there");
}

std::string explain(const std::vector<ContractDifference>& differences) {
  std::string text;
  for (const ContractDifference& field : differences) text += "\n  " + to_string(field);
  return text + "\n" + remedy_of(differences);
}

}  // namespace spillway
