#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/config_check.h"

namespace spillway {

/// Gathers what is wrong, so that all of it can be said in one go.
class Findings {
 public:
  /// The same problem of the same field counts once, on the line where it was found first.
  void add(const std::string& field, int line, const std::string& problem);

  /// A key that means nothing; all other values are as they were written.
  void add_unknown_key(const std::string& field, int line, const std::string& problem);

  std::size_t num_unknown_keys() const { return unknown_keys_.size(); }
  bool has_unknown_key(const std::string& field) const { return unknown_keys_.contains(field); }

  bool empty() const { return all_.empty(); }
  const std::vector<ConfigError>& all() const { return all_; }
  /// Whether a value of `section`, or of a field below it, could not be taken.
  bool concern(std::string_view section) const;
  /// Throws ConfigErrors, in order of lines.
  void throw_if_any() const;

 private:
  std::vector<ConfigError> all_;
  std::set<std::pair<std::string, std::string>> known_;  // (field, problem) of them
  std::set<std::string> unknown_keys_;
};

}  // namespace spillway
