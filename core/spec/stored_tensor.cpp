#include "core/spec/stored_tensor.h"

#include <fmt/format.h>

#include <map>

#include "spillway/error.h"

namespace spillway {

std::vector<StoredTensor> stored_tensors(const ModelSpec& model) {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::size_t> known;  // of divided tensors
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    const ParamSpec& param = model.params[p];
    const StoredSlice& slice = param.stored;
    const auto number = static_cast<int>(p);
    if (slice.name.empty()) {
      tensors.push_back({param.name, param.master(), {number}});
      continue;
    }
    const auto [place, is_new] = known.try_emplace(slice.name, tensors.size());
    if (is_new) {
      tensors.push_back({slice.name, {param.master().dtype, slice.dims}, {}});
    }
    tensors[place->second].params.push_back(number);
  }
  for (const StoredTensor& stored : tensors) {
    std::int64_t elements = 0;
    for (int p : stored.params) {
      elements += model.params[static_cast<std::size_t>(p)].tensor.elements();
    }
    if (elements == stored.tensor.elements()) continue;
    throw Error(fmt::format("model {}: the parts of tensor {} have {} elements, not {}",
                            model.family, stored.name, elements, stored.tensor.elements()));
  }
  return tensors;
}

std::vector<std::size_t> tensor_numbers(const ModelSpec& model) {
  std::vector<std::size_t> numbers(model.params.size());
  const std::vector<StoredTensor> tensors = stored_tensors(model);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    for (int p : tensors[t].params) numbers[static_cast<std::size_t>(p)] = t;
  }
  return numbers;
}

}  // namespace spillway
