#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/safetensors/safetensors.h"
#include "models/data/data_files.h"
#include "spillway/data_source.h"
#include "spillway/error.h"
#include "spillway/exported.h"

namespace spillway {
namespace {

constexpr const char* kRowsTensor = "rows";

[[noreturn]] void reject(const std::string& path, const std::string& problem) {
  throw ConfigError("data.path", 0, fmt::format("'{}' {}", path, problem));
}

using Convert = void (*)(const std::byte* from, std::size_t count, std::byte* to);

/// Whole numbers of more than 24 bits have no float.
template <typename From, typename To>
To converted(From value) {
  constexpr std::int64_t kExact = std::int64_t{1} << 24;
  if constexpr (std::is_same_v<To, float> && std::is_integral_v<From> && sizeof(From) > 2) {
    if (static_cast<std::int64_t>(value) > kExact || static_cast<std::int64_t>(value) < -kExact)
      throw Error(fmt::format("has {}, which a float32 row does not hold exactly", value));
  }
  return static_cast<To>(value);
}

template <typename From, typename To>
void convert(const std::byte* from, std::size_t count, std::byte* to) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    const To result = converted<From, To>(value);
    std::memcpy(to + i * sizeof(To), &result, sizeof(To));
  }
}

/// Null if values of this type do not become a row's.
template <typename To>
Convert converter(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, Convert>, 7> kConverters{
      {{"I64", &convert<std::int64_t, To>},
       {"I32", &convert<std::int32_t, To>},
       {"I16", &convert<std::int16_t, To>},
       {"U16", &convert<std::uint16_t, To>},
       {"I8", &convert<std::int8_t, To>},
       {"U8", &convert<std::uint8_t, To>},
       {"BOOL", &convert<std::uint8_t, To>}}};
  if (dtype == "F32" && std::is_same_v<To, float>) return &convert<float, To>;
  const auto* const found =
      std::ranges::find(kConverters, dtype, &std::pair<std::string_view, Convert>::first);
  return found == kConverters.end() ? nullptr : found->second;
}

/// Tensors of a file, side by side as rows.
class TensorRows final : public DataSource {
 public:
  TensorRows(const std::filesystem::path& path, const ExportedInfo& info)
      : path_(path), info_(info), tensors_(source_of(path)) {
    for (const ExportedInfo::Input& input : wanted()) add(input);
  }

  std::uint64_t num_samples() const override { return num_samples_; }
  std::int64_t sample_elements() const override { return info_.row_elements; }
  DType dtype() const override { return info_.row_dtype; }
  void read(std::uint64_t index, std::span<std::byte> row) const override { read_rows(index, row); }
  void read_rows(std::uint64_t first, std::span<std::byte> rows) const override {
    const std::size_t value = size_of(info_.row_dtype);
    const std::size_t row = static_cast<std::size_t>(info_.row_elements) * value;
    const std::size_t num_rows = rows.size() / row;
    assert(first + num_rows <= num_samples_);
    std::ranges::fill(rows, std::byte{0});
    for (const Column& column : columns_) {
      std::vector<std::byte> bytes(num_rows * column.sample_bytes);
      tensors_.read(column.tensor, first * column.sample_bytes, bytes);
      for (std::size_t i = 0; i < num_rows; ++i) {
        const auto* from = bytes.data() + i * column.sample_bytes;
        std::byte* const to = rows.data() + i * row + column.begin * value;
        convert(column, from, to);
      }
    }
  }

 private:
  struct Column {
    TensorEntry tensor;
    Convert convert = nullptr;
    std::size_t begin = 0, elements = 0, sample_bytes = 0;
  };

  static ByteSource source_of(const std::filesystem::path& path) {
    // Shared, because std::function copies its target.
    const auto files = std::make_shared<const DataFiles>(std::vector{path.string()});
    if (files->num_files() != 1) reject(path, "is a folder; name one file");
    return {.path = path, .size = files->size(0), .read = [files](auto into, Bytes offset) {
              files->read(0, offset, into);
            }};
  }

  /// The inputs of the model, or the row as one.
  std::vector<ExportedInfo::Input> wanted() const {
    if (std::ranges::count(tensors_.names(), kRowsTensor) > 0 && tensors_.names().size() == 1)
      return {{.name = kRowsTensor, .begin = 0, .shape = {info_.row_elements}, .dtype = ""}};
    std::vector<std::string> names;
    for (const auto& input : info_.inputs) names.push_back(input.name);
    for (const std::string& name : tensors_.names()) {
      if (std::ranges::count(names, name) > 0) continue;
      reject(path_, fmt::format("has the tensor '{}', but the model's inputs are {}; rename it",
                                name, fmt::join(names, ", ")));
    }
    return info_.inputs;
  }

  void add(const ExportedInfo::Input& input) {
    const auto& all = tensors_.tensors();
    const auto tensor = std::ranges::find(all, input.name, &TensorEntry::name);
    const auto fail = [&](const std::string& problem) {
      reject(path_,
             fmt::format("has no tensor that is input '{}' of the model: {}", input.name, problem));
    };
    if (tensor == all.end()) fail("no tensor has this name");
    std::vector<std::int64_t> shape{tensor->shape.empty() ? 0 : tensor->shape.front()};
    shape.insert(shape.end(), input.shape.begin(), input.shape.end());
    if (tensor->shape != shape) {
      fail(fmt::format("its shape is [{}], must be [samples{}{}]", fmt::join(tensor->shape, ", "),
                       input.shape.empty() ? "" : ", ", fmt::join(input.shape, ", ")));
    }
    const bool is_float = info_.row_dtype == DType::f32;
    Column column{.tensor = *tensor,
                  .convert = is_float ? converter<float>(tensor->dtype)
                                      : converter<std::int64_t>(tensor->dtype),
                  .begin = static_cast<std::size_t>(input.begin),
                  .elements = 1};
    if (column.convert == nullptr) {
      fail(fmt::format("its type is {}, must be {}I64, I32, I16, U16, I8, U8 or BOOL",
                       tensor->dtype, is_float ? "F32, " : ""));
    }
    for (const std::int64_t size : input.shape) column.elements *= static_cast<std::size_t>(size);
    column.sample_bytes = column.elements * element_bytes(tensor->dtype);
    for (const Column& other : columns_) {
      if (column.begin < other.begin + other.elements &&
          other.begin < column.begin + column.elements)
        fail(fmt::format(
            "it shares values of the row with '{}'; give one tensor, 'rows' [samples, {}]",
            other.tensor.name, info_.row_elements));
    }
    const auto samples = static_cast<std::uint64_t>(shape.front());
    if (samples == 0) fail("it has no samples");
    if (!columns_.empty() && samples != num_samples_)
      fail(fmt::format("it has {} samples, but '{}' has {}", samples, columns_.front().tensor.name,
                       num_samples_));
    num_samples_ = samples;
    columns_.push_back(std::move(column));
  }

  void convert(const Column& column, const std::byte* from, std::byte* to) const {
    try {
      column.convert(from, column.elements, to);
    } catch (const Error& error) {
      reject(path_, fmt::format("tensor '{}' {}", column.tensor.name, error.what()));
    }
  }

  std::string path_;
  ExportedInfo info_;
  Safetensors tensors_;
  std::uint64_t num_samples_ = 0;
  std::vector<Column> columns_;
};

}  // namespace

std::shared_ptr<const DataSplit> exported_data(const std::filesystem::path& path,
                                               const ExportedInfo& info, double eval_fraction) {
  std::shared_ptr<const DataSource> rows;
  try {
    rows = std::make_shared<TensorRows>(path, info);
  } catch (const CorruptData& error) {
    throw ConfigError("data.path", 0, error.what());
  }
  return std::make_shared<const DataSplit>(split(std::move(rows), eval_fraction));
}

}  // namespace spillway
