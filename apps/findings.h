#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace spillway {

/// Everything wrong with a configuration, one message a line, in order of lines.
class ConfigErrors : public Error {
 public:
  explicit ConfigErrors(std::vector<ConfigError> all);
  std::vector<ConfigError> all;
};

/// Gathers what is wrong, so that all of it can be said in one go.
class Findings {
 public:
  /// The same problem of the same field counts once, on the line where it was found first.
  void add(const std::string& field, int line, const std::string& problem);

  bool empty() const { return all_.empty(); }
  const std::vector<ConfigError>& all() const { return all_; }
  /// Whether something is wrong with `section` or a field below it.
  bool concern(std::string_view section) const;
  /// Throws ConfigErrors.
  void throw_if_any() const;

 private:
  std::vector<ConfigError> all_;
};

}  // namespace spillway
