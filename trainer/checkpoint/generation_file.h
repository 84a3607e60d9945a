#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/safetensors/safetensors.h"
#include "spillway/contract.h"

namespace spillway {

/// A data file to be written; the writer asks for its bytes block by block.
struct GenerationFile {
  std::string name;
  Bytes bytes = 0;
  /// Fills all of `block` with the file's bytes from `offset`. Called for consecutive blocks from
  /// the first to the last, on the thread that writes.
  std::function<void(std::span<std::byte> block, Bytes offset)> fill;
};

/// A file with these bytes.
GenerationFile bytes_file(std::string name, std::string bytes);

/// A safetensors file. Tensors of larger elements come first, so that all are aligned; otherwise
/// the order is as given. `fill` writes the bytes of a tensor from its byte `offset`.
GenerationFile safetensors_file(
    std::string name, std::vector<TensorEntry> tensors,
    std::function<void(const TensorEntry&, std::span<std::byte> into, Bytes offset)> fill);

/// One state of a job, as it goes into a generation of checkpoints.
struct GenerationContent {
  std::string job;
  std::uint64_t step = 0;
  std::string build;  ///< recorded, never compared
  Contract contract;
  std::vector<GenerationFile> files;
};

}  // namespace spillway
