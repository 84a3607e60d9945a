#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/config_check.h"
#include "spillway/units.h"

/// How a field of a configuration is declared, once: by a line in a function template `visit_...`,
///   visitor.field(key, value, range, sentence, in_contract);
/// Visitors read, write, check and document it, see docs/internals/configuration.md. They also have
///   section(key, visit), list(key, items, example, sentence, visit, in_contract);
///   require_key(key, remedy): the key has no default;
///   applies(condition): whether fields exist that depend on other values;
///   shows(condition): whether fields are written that mean nothing otherwise.
namespace spillway {

/// Whether a field is part of a trial's contract.
enum class InContract : std::uint8_t {
  no,
  yes,
  unless_default,  ///< where it has another value than its default
  of_sgd,          ///< of trials with that optimizer
  of_adamw,        ///< of trials with that optimizer
  of_decay,        ///< of trials with the schedule `warmup_stable_decay`
  by_content       ///< as the content of the files that it selects
};

/// Any value of the type.
struct AnyValue {};
inline constexpr AnyValue kAny;

struct IntRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  const char* word = nullptr;  ///< may be written instead of a number
  int meaning = 0;             ///< of the word
};

struct NumberRange {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool above_min = false;  ///< `min` itself is excluded
  bool below_max = false;  ///< `max` itself is excluded
};

struct SizeRange {
  Bytes min = 1;
  Bytes max = std::numeric_limits<Bytes>::max();
};

/// Bytes per second.
struct RateRange {
  Bytes min = 1;
  bool may_be_unlimited = true;  ///< 0: not limited
};

/// Whether a list of sections may be empty.
enum class MayBeEmpty : bool { no, yes };

/// A list of texts; one text stands for a list of one.
struct TextList {
  bool may_be_empty = false;
};

bool contains(const IntRange& range, std::int64_t value);
bool contains(const NumberRange& range, double value);
bool contains(const SizeRange& range, Bytes value);
bool contains(const RateRange& range, Bytes value);

/// "an integer from 1 to 10", "a number of at least 0 and below 1".
std::string describe(const IntRange& range);
std::string describe(const NumberRange& range);
/// "a size from 4 KiB to 16 TiB, such as 12MiB".
std::string describe(const SizeRange& range);
/// "a rate of at least 1 MiB/s, such as 2GB/s, or 0 for no limit".
std::string describe(const RateRange& range);

/// The visitor that checks values of the C++ API.
class FieldCheck {
 public:
  explicit FieldCheck(ConfigCheck& check, std::string prefix = "")
      : check_(check), prefix_(std::move(prefix)) {}

  template <typename Value, typename Range>
  void field(const std::string& key, const Value& value, const Range& range,
             const char* /*sentence*/, InContract /*in_contract*/ = InContract::no) {
    if constexpr (requires { contains(range, value); }) require(key, range, value);
  }
  template <typename Item>
  void field(const std::string& key, const std::vector<Item>& values, const IntRange& range,
             const char* /*sentence*/, InContract /*in_contract*/ = InContract::no) {
    for (const Item& value : values) require(key, range, value);
  }
  void field(const std::string& key, const std::array<std::int64_t, 2>& values,
             const IntRange& range, const char* sentence, InContract in_contract = InContract::no) {
    field(key, std::vector(values.begin(), values.end()), range, sentence, in_contract);
  }
  template <typename Visit>
  void section(const std::string& key, const Visit& visit) {
    FieldCheck inner(check_, prefix_ + key + ".");
    visit(inner);
  }
  template <typename Item, typename Visit>
  void list(const std::string& key, const std::vector<Item>& items, const char* /*example*/,
            const char* /*sentence*/, const Visit& visit,
            InContract /*in_contract*/ = InContract::no,
            MayBeEmpty /*may_be_empty*/ = MayBeEmpty::no) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      FieldCheck inner(check_, prefix_ + key + "[" + std::to_string(i) + "].");
      visit(items[i], inner);
    }
  }
  void require_key(const char* /*key*/, const char* /*remedy*/) {}
  bool applies(bool condition) const { return condition; }
  bool shows(bool /*condition*/) const { return true; }

  /// Whether the value of a key is in its range.
  bool holds(const std::string& key) const { return !failed_.contains(key); }

 private:
  template <typename Value, typename Range>
  void require(const std::string& key, const Range& range, const Value& value) {
    if (contains(range, value)) return;
    check_.require(false, prefix_ + key,
                   "is " + text(range, value) + ", must be " + describe(range));
    failed_.insert(key);
  }
  static std::string text(const IntRange& range, std::int64_t value);
  static std::string text(const NumberRange& range, double value);
  static std::string text(const SizeRange& range, Bytes value);
  static std::string text(const RateRange& range, Bytes value);

  ConfigCheck& check_;
  std::string prefix_;
  std::set<std::string> failed_;
};

}  // namespace spillway
