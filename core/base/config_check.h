#pragma once

#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"

namespace spillway {

/// All that is wrong with a configuration. As a ConfigError it is the first; what() says every one,
/// a line each.
class ConfigErrors : public ConfigError {
 public:
  /// At least one.
  explicit ConfigErrors(std::vector<ConfigError> errors);
  const char* what() const noexcept override { return text_.c_str(); }
  std::vector<ConfigError> all;

 private:
  std::string text_;
};

/// Gathers what is wrong with a configuration, so that all of it is said in one go.
class ConfigCheck {
 public:
  /// Names of fields are said after `prefix`, such as "train.".
  explicit ConfigCheck(std::string prefix = "") : prefix_(std::move(prefix)) {}

  /// Notes the problem unless it `holds`. Returns that: further checks may depend on it.
  bool require(bool holds, const std::string& field, const std::string& problem);

  /// Notes what `step` throws as ConfigError, whose fields have their whole names. Returns whether
  /// it threw nothing.
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
  /// Throws ConfigErrors where anything was noted.
  void finish() const;

 private:
  std::string prefix_;
  std::vector<ConfigError> found_;
};

}  // namespace spillway
