#include <algorithm>
#include <vector>

#include "core/safetensors/safetensors.h"
#include "spillway/error.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/input.h"

namespace spillway {
namespace {

using testing::require;
using testing::source_of;

void read_all(const Safetensors& file, Bytes file_bytes) {
  Bytes total = 0;
  for (const auto& tensor : file.tensors()) {
    require(tensor.bytes() <= file_bytes, "a tensor is no larger than its file");
    std::vector<std::byte> data(tensor.bytes());
    file.read(tensor, 0, data);
    require(file.at(tensor.name) == tensor, "a tensor is found by its name");
    total += tensor.bytes();
  }
  require(total <= file_bytes, "all tensors are no larger than their file");
}

/// Written by Spillway's writer, the file reads back as the same tensors.
void write_again(const Safetensors& file, Bytes data_bytes) {
  auto tensors = file.tensors();
  place(tensors);
  require(tensors == file.tensors(), "tensors lie one behind the other");
  const Safetensors again(source_of(safetensors_header(tensors) + std::string(data_bytes, '\0')));
  require(std::ranges::is_permutation(again.tensors(), tensors), "what is written is read");
}

}  // namespace
}  // namespace spillway

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  try {
    const Safetensors file(source_of(testing::to_string(data, size)));
    read_all(file, size);
    write_again(file, file.tensors().empty() ? 0 : file.tensors().back().end);
  } catch (const CorruptData&) {
  }
  return 0;
}
