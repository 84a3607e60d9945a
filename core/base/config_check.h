#pragma once

#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"

namespace spillway {

/// All errors of a configuration. As a ConfigError it is the first of them; what() lists all, one
/// per line.
class ConfigErrors : public ConfigError {
 public:
  /// `errors` is not empty.
  explicit ConfigErrors(std::vector<ConfigError> errors);
  const char* what() const noexcept override { return text_.c_str(); }
  std::vector<ConfigError> all;

 private:
  std::string text_;
};

/// Collects the errors of a configuration, so that the user sees all of them at once.
class ConfigCheck {
 public:
  /// `prefix`, such as "train.", precedes the names of fields.
  explicit ConfigCheck(std::string prefix = "") : prefix_(std::move(prefix)) {}

  /// Records the problem unless `holds`. Returns `holds`, because other checks may depend on it.
  bool require(bool holds, const std::string& field, const std::string& problem);

  /// Records the ConfigErrors that `step` throws, without adding the prefix. Returns whether there
  /// were none.
  template <typename Step>
  bool run(const Step& step) {
    try {
      step();
    } catch (const ConfigErrors& errors) {
      found_.insert(found_.end(), errors.all.begin(), errors.all.end());
      return false;
    } catch (const ConfigError& error) {
      found_.push_back(error);
      return false;
    }
    return true;
  }

  const std::vector<ConfigError>& found() const { return found_; }
  /// Throws ConfigErrors if there are any.
  void finish() const;

 private:
  std::string prefix_;
  std::vector<ConfigError> found_;
};

}  // namespace spillway
