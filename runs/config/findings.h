#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/config_check.h"

namespace spillway {

/// Collects all problems, so that they are reported together.
class Findings {
 public:
  /// Ignores duplicates: one entry per field and problem.
  void add(const std::string& field, int line, const std::string& problem);

  /// An unknown key; other values are unaffected.
  void add_unknown_key(const std::string& field, int line, const std::string& problem);

  std::size_t num_unknown_keys() const { return unknown_keys_.size(); }
  bool has_unknown_key(const std::string& field) const { return unknown_keys_.contains(field); }

  bool empty() const { return all_.empty(); }
  const std::vector<ConfigError>& all() const { return all_; }
  /// True if a problem concerns `section` or a field in it.
  bool concern(std::string_view section) const;
  /// Throws ConfigErrors, in order of lines.
  void throw_if_any() const;

 private:
  std::vector<ConfigError> all_;
  std::set<std::pair<std::string, std::string>> known_;  // their (field, problem)
  std::set<std::string> unknown_keys_;
};

}  // namespace spillway
