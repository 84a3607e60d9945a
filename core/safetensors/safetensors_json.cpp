#include "core/safetensors/safetensors_json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

/// LibTorch's limit.
constexpr std::size_t kMaxRank = 64;
constexpr auto kMaxNumber = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

[[noreturn]] void fail(const std::string& problem) { throw Error(problem); }

/// Accepts {"name": {"dtype": "F32", "shape": [..], "data_offsets": [b, e]}} and
/// {"__metadata__": {"key": "value"}}, and nothing else.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool number_integer(number_integer_t) override { return wrong("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return wrong("a fraction"); }
  bool binary(binary_t&) override { return wrong("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) return wrong("a number");
    if (value > kMaxNumber) fail(in_tensor() + "has a number that is too large");
    auto& numbers = field_ == "shape" ? shape_ : offsets_;
    if (numbers.size() == (field_ == "shape" ? kMaxRank : 2))
      fail(in_tensor() + "has too many numbers in " + field_);
    numbers.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& text) override {
    if (in_array_ || depth_ != 2) return wrong("a string");
    if (in_metadata_) {
      header_.metadata[field_] = text;
    } else if (field_ == "dtype") {
      dtype_ = text;
    } else {
      return wrong("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_array_ || depth_ == 2) return wrong("an object");
    if (++depth_ == 2) {
      in_metadata_ = name_ == "__metadata__";
      fields_.clear();
      shape_.clear();
      offsets_.clear();
      dtype_.clear();
    }
    return true;
  }

  bool key(string_t& text) override {
    auto& seen = depth_ == 1 ? names_ : fields_;
    (depth_ == 1 ? name_ : field_) = text;
    if (depth_ == 1) field_.clear();
    if (!seen.insert(text).second) fail(fmt::format("has '{}' twice", text));
    const bool known = text == "dtype" || text == "shape" || text == "data_offsets";
    if (depth_ == 2 && !in_metadata_ && !known)
      fail(fmt::format("{}has an unknown field '{}'", in_tensor(), text));
    return true;
  }

  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) add_tensor();
    return true;
  }

  bool start_array(std::size_t) override {
    const bool may = depth_ == 2 && !in_metadata_ && !in_array_ && field_ != "dtype";
    if (!may) return wrong("an array");
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
    fail(fmt::format("is not JSON at byte {} of its header", at));
  }

 private:
  std::string in_tensor() const { return fmt::format("tensor '{}' ", name_); }
  [[noreturn]] bool wrong(const std::string& what) const {
    fail(fmt::format("must not have {} in its header at '{}' {}", what, name_, field_));
  }
  void add_tensor() {
    if (fields_.size() != 3) fail(in_tensor() + "lacks one of dtype, shape, data_offsets");
    if (offsets_.size() != 2) fail(in_tensor() + "has data_offsets that are not two numbers");
    header_.tensors.push_back({.name = name_,
                               .dtype = dtype_,
                               .shape = shape_,
                               .begin = static_cast<Bytes>(offsets_[0]),
                               .end = static_cast<Bytes>(offsets_[1])});
  }

  SafetensorsHeader header_;
  int depth_ = 0;
  bool in_array_ = false, in_metadata_ = false;
  std::set<std::string> names_, fields_;
  std::string name_, field_, dtype_;
  std::vector<std::int64_t> shape_, offsets_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json) {
  if (!json.starts_with('{')) fail("has a header that does not begin with '{'");
  HeaderReader reader;
  nlohmann::json::sax_parse(json, &reader);
  return reader.take();
}

}  // namespace spillway
