#include "trainer/contract.h"

namespace spillway {
namespace {

std::optional<std::string> value_of(const Contract& contract, const std::string& field) {
  const auto found = contract.find(field);
  return found == contract.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::vector<ContractDifference> differences(const Contract& then, const Contract& now) {
  Contract all = then;
  all.insert(now.begin(), now.end());
  std::vector<ContractDifference> found;
  for (const auto& [field, value] : all) {
    ContractDifference difference{field, value_of(then, field), value_of(now, field)};
    if (difference.then != difference.now) found.push_back(std::move(difference));
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
  const bool only_data = differences.size() == 1 && differences[0].field == "data";
  return text + (only_data ? "\nthe files of data.path, or how they are read, changed since; put "
                             "them back as they were"
                           : "\ngo on with what it was");
}

}  // namespace spillway
