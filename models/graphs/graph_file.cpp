#include "models/graphs/graph_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>
#include <system_error>
#include <vector>

#include "core/base/xxh3.h"
#include "models/graphs/spec_json.h"
#include "spillway/error.h"

namespace spillway {
namespace {

constexpr const char* kDocument = "spillway";
constexpr Bytes kBlock = 1_MiB;

std::shared_ptr<const DataFiles> opened(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw Error(fmt::format("'{}' is a folder; name a .spw file", path.string()));
  try {
    return std::make_shared<const DataFiles>(std::vector{path.string()});
  } catch (const ConfigError& problem) {
    throw Error(problem.problem);
  }
}

ByteSource source_of(const std::shared_ptr<const DataFiles>& file) {
  return {.path = file->path(0), .size = file->size(0), .read = [file](auto into, Bytes offset) {
            file->read(0, offset, into);
          }};
}

ExportedSpec spec_of(const Safetensors& tensors, const std::string& path) {
  const auto document = tensors.metadata().find(kDocument);
  if (document == tensors.metadata().end()) {
    throw CorruptData(
        path, "is not an exported model: its metadata lacks the key 'spillway' (docs/formats.md)");
  }
  try {
    return exported_spec(document->second, tensors, path);
  } catch (const NewerFormat&) {
    throw;
  } catch (const Error& error) {
    throw CorruptData(path, fmt::format("is not a valid model: {}", error.what()));
  }
}

/// Of `size` bytes, block by block.
std::string hash_of(Bytes size, const std::function<void(std::span<std::byte>, Bytes)>& read) {
  Xxh3 hash;
  std::vector<std::byte> block(std::min(kBlock, size));
  for (Bytes at = 0; at < size; at += block.size()) {
    const auto part = std::span(block).first(std::min<Bytes>(block.size(), size - at));
    read(part, at);
    hash.add(part.data(), part.size());
  }
  return hash.hex();
}

}  // namespace

GraphFile::GraphFile(const std::filesystem::path& path)
    : path_(path),
      file_(opened(path)),
      source_(source_of(file_)),
      tensors_(source_),
      spec_(spec_of(tensors_, path_)) {}

std::shared_ptr<std::byte> GraphFile::map(Bytes begin, Bytes bytes) const {
  return file_->map(0, begin, bytes);
}

std::string GraphFile::xxh3() const { return hash_of(source_.size, source_.read); }

std::string GraphFile::xxh3(const TensorEntry& tensor) const {
  return hash_of(tensor.bytes(),
                 [&](auto into, Bytes offset) { tensors_.read(tensor, offset, into); });
}

}  // namespace spillway
