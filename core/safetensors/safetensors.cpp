#include "core/safetensors/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/os/open_file.h"
#include "core/safetensors/safetensors_json.h"
#include "spillway/error.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

/// The limit of the format's own library.
constexpr Bytes kMaxHeaderBytes = 100'000'000;
constexpr Bytes kLengthBytes = sizeof(std::uint64_t);

constexpr std::array<std::pair<std::string_view, Bytes>, 15> kTypes{{{"BOOL", 1},
                                                                     {"U8", 1},
                                                                     {"I8", 1},
                                                                     {"F8_E4M3", 1},
                                                                     {"F8_E5M2", 1},
                                                                     {"U16", 2},
                                                                     {"I16", 2},
                                                                     {"F16", 2},
                                                                     {"BF16", 2},
                                                                     {"U32", 4},
                                                                     {"I32", 4},
                                                                     {"F32", 4},
                                                                     {"U64", 8},
                                                                     {"I64", 8},
                                                                     {"F64", 8}}};

std::string quoted(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Nullopt if the number exceeds 64 bits.
std::optional<Bytes> bytes_of(const TensorEntry& tensor) {
  Bytes bytes = element_bytes(tensor.dtype);
  if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) return 0;
  for (const auto dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<Bytes>(dim), &bytes)) return std::nullopt;
  }
  return bytes;
}

/// Throws Error unless the tensors cover `data_bytes` without gaps or overlap.
void check_tensors(std::span<const TensorEntry> tensors, Bytes data_bytes) {
  Bytes end = 0;
  for (const auto& tensor : tensors) {
    const auto fail = [&](const std::string& problem) {
      throw Error(fmt::format("tensor '{}' {}", tensor.name, problem));
    };
    if (element_bytes(tensor.dtype) == 0)
      fail(fmt::format("has the unknown type '{}'", tensor.dtype));
    if (tensor.begin != end)
      fail(fmt::format("begins at byte {}, but the previous tensor ends at byte {}", tensor.begin,
                       end));
    if (tensor.end < tensor.begin || bytes_of(tensor) != tensor.bytes())
      fail("has data_offsets that do not match its type and shape");
    end = tensor.end;
  }
  if (end != data_bytes)
    throw Error(fmt::format("holds {} bytes of data, but its tensors have {}", data_bytes, end));
}

/// PyTorch's files start with a zip archive or with the opcode of a pickle's protocol.
bool is_torch_file(std::span<const std::byte> first) {
  constexpr std::byte kProtocol{0x80};
  if (first.size() < 2 || (first.size() > kLengthBytes && first[kLengthBytes] == std::byte{'{'}))
    return false;
  return first[0] == kProtocol || (first[0] == std::byte{'P'} && first[1] == std::byte{'K'});
}

std::string read_header(const ByteSource& source) {
  std::array<std::byte, kLengthBytes + 1> first{};
  const auto begin = std::span(first).first(std::min<Bytes>(first.size(), source.size));
  source.read(begin, 0);
  if (is_torch_file(begin))
    throw Error(
        "is a pickle or an archive of PyTorch, which is not opened because it can run code; "
        "convert it: safetensors.torch.save_file(torch.load(FILE, weights_only=True), "
        "'FILE.safetensors')");
  if (source.size < kLengthBytes)
    throw Error("is not a safetensors file: it is shorter than 8 bytes");
  std::uint64_t length = 0;
  std::memcpy(&length, first.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > source.size - kLengthBytes)
    throw Error(
        fmt::format("claims that its header has {} bytes, but the file has {} and the limit is {}",
                    length, source.size, kMaxHeaderBytes));
  std::string json(length, '\0');
  source.read(std::as_writable_bytes(std::span(json)), kLengthBytes);
  return json;
}

}  // namespace

Bytes element_bytes(std::string_view dtype) {
  const auto* const type =
      std::ranges::find(kTypes, dtype, &std::pair<std::string_view, Bytes>::first);
  return type == kTypes.end() ? 0 : type->second;
}

std::string safetensors_dtype(DType dtype) {
  constexpr std::array kTypeNames{"F32", "BF16", "I64"};  // in the order of DType
  return kTypeNames.at(static_cast<std::size_t>(dtype));
}

void place(std::span<TensorEntry> tensors) {
  Bytes end = 0;
  for (auto& tensor : tensors) {
    const auto bytes = bytes_of(tensor);
    assert(bytes.has_value());
    tensor.begin = end;
    tensor.end = end += *bytes;
  }
}

std::string safetensors_header(std::span<const TensorEntry> tensors) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  for (const auto& tensor : tensors) {
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        quoted(tensor.name), tensor.dtype, fmt::join(tensor.shape, ","),
                        tensor.begin, tensor.end);
  }
  json += '}';
  json.resize(round_up(json.size(), kLengthBytes), ' ');
  const std::uint64_t length = json.size();
  std::string header(kLengthBytes, '\0');
  std::memcpy(header.data(), &length, kLengthBytes);
  return header + json;
}

std::string bytes_of(const ByteSource& source) {
  std::string bytes(source.size, '\0');
  source.read(std::as_writable_bytes(std::span(bytes)), 0);
  return bytes;
}

ByteSource file_source(FileSystem& files, const std::filesystem::path& path) {
  // Shared, because std::function copies its target.
  const auto file = std::make_shared<OpenFile>(OpenFile::open(files, path));
  return {.path = path, .size = file->size(), .read = [file](auto into, Bytes offset) {
            file->read_all(into, offset);
          }};
}

Safetensors::Safetensors(ByteSource source) : source_(std::move(source)) {
  try {
    const std::string json = read_header(source_);
    auto header = parse_safetensors_header(json);
    for (const TensorEntry& tensor : header.tensors) names_.push_back(tensor.name);
    std::ranges::stable_sort(header.tensors, {}, [](const TensorEntry& tensor) {
      return std::pair(tensor.begin, tensor.end);
    });
    data_begin_ = kLengthBytes + json.size();
    check_tensors(header.tensors, source_.size - data_begin_);
    tensors_ = std::move(header.tensors);
    metadata_ = std::move(header.metadata);
  } catch (const IoError&) {
    throw;
  } catch (const CorruptData&) {
    throw;
  } catch (const Error& error) {
    throw CorruptData(source_.path, error.what());
  }
}

const TensorEntry& Safetensors::at(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &TensorEntry::name);
  if (found == tensors_.end())
    throw CorruptData(source_.path, fmt::format("holds no tensor '{}'", name));
  return *found;
}

void Safetensors::read(const TensorEntry& tensor, Bytes offset, std::span<std::byte> into) const {
  assert(offset <= tensor.bytes() && into.size() <= tensor.bytes() - offset);
  source_.read(into, data_begin_ + tensor.begin + offset);
}

}  // namespace spillway
