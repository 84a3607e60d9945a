#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runs/config/findings.h"
#include "runs/config/yaml_node.h"
#include "spillway/units.h"

namespace spillway {

struct IntRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

struct NumberRange {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool below_max = false;  ///< `max` itself is out
};

/// Whether `text` is a whole number, of any size.
bool is_whole(const std::string& text);

/// So many unknown keys are named, each with the known one most like it.
inline constexpr std::size_t kMaxUnknownKeys = 100;

/// What readers of one document share: what is wrong, and which keys there are.
class YamlSchema {
 public:
  explicit YamlSchema(Findings& findings) : findings_(&findings) {}
  Findings& findings() { return *findings_; }
  const std::vector<std::string>& known() const { return known_; }
  void know(std::string path) { known_.push_back(std::move(path)); }
  void suspect(std::string path, int line) { unknown_.emplace_back(std::move(path), line); }
  /// Once every reader has ended: finds the unknown keys, each with the known one most like it.
  void report_unknown();

 private:
  Findings* findings_;
  std::vector<std::string> known_;
  std::vector<std::pair<std::string, int>> unknown_;
};

/// Reads the keys of one map. A read leaves its target alone where the key is absent, and, with a
/// finding, where the value is wrong. Absent maps must be read too, so that all keys are known.
class YamlReader {
 public:
  /// `node` outlives the reader; null: an absent map.
  YamlReader(YamlSchema& schema, const YamlNode* node, std::string path);

  void read(const char* key, std::int64_t& value, IntRange range);
  void read(const char* key, int& value, IntRange range);
  /// `word` may stand there too; it means `meaning`.
  void read(const char* key, int& value, IntRange range, const std::string& word, int meaning);
  void read(const char* key, std::uint64_t& value);
  void read(const char* key, double& value, NumberRange range);
  void read(const char* key, bool& value);
  /// A list of numbers.
  void read_numbers(const char* key, std::vector<double>& values, NumberRange range);
  /// A list of one whole number or more.
  void read_integers(const char* key, std::vector<std::int64_t>& values, IntRange range);
  void read_text(const char* key, std::string& value);
  /// An empty text stands for none.
  void read_path(const char* key, std::filesystem::path& value);
  void read_choice(const char* key, std::string& value, const std::vector<std::string>& choices);
  void read_size(const char* key, Bytes& value, Bytes min = 1,
                 Bytes max = std::numeric_limits<Bytes>::max());
  /// Bytes per second; 0 without a unit: none.
  void read_rate(const char* key, Bytes& bytes_per_s, Bytes min);
  /// A list of texts, or one text that stands for a list of one.
  void read_texts(const char* key, std::vector<std::string>& values, bool may_be_empty = false);
  YamlReader section(const char* key);
  /// One reader for each item of a list.
  std::vector<YamlReader> items(const char* key);
  /// The raw value; null where absent.
  const YamlNode* raw(const char* key);
  /// A finding with `remedy` if the key is absent.
  void require(const char* key, const std::string& remedy);

  /// After the last read: keys that were not read are unknown.
  void finish();

 private:
  std::string path_of(const std::string& key) const;
  const YamlNode* scalar(const char* key, const char* remedy);
  std::optional<std::int64_t> integer(const std::string& key, const YamlNode& node, IntRange range,
                                      const std::string& otherwise = "");
  std::optional<double> number(const std::string& key, const YamlNode& node, NumberRange range);
  void complain(const std::string& key, const YamlNode& node, const std::string& problem);

  YamlSchema* schema_;
  const YamlNode* node_;
  int line_;
  std::string path_;
  std::vector<std::string> keys_;
};

}  // namespace spillway
