#include "tests/support/models/safetensors.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

namespace spillway::testing {

std::map<std::string, at::Tensor> read_safetensors(const std::string& file) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const char* data = file.data() + sizeof header_bytes + header_bytes;
  std::map<std::string, at::Tensor> tensors;
  const auto header = nlohmann::json::parse(file.substr(sizeof header_bytes, header_bytes));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto type = entry.at("dtype") == "I64" ? at::kLong : at::kFloat;
    at::Tensor value = at::empty(entry.at("shape").get<std::vector<std::int64_t>>(), type);
    std::memcpy(value.mutable_data_ptr(), data + entry.at("data_offsets")[0].get<std::size_t>(),
                value.nbytes());
    tensors[name] = value;
  }
  return tensors;
}

}  // namespace spillway::testing
