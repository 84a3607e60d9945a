#include "core/base/config_check.h"

namespace spillway {

ConfigErrors::ConfigErrors(std::vector<ConfigError> errors)
    : ConfigError(errors.front()), all(std::move(errors)) {
  for (const ConfigError& error : all) {
    if (!text_.empty()) text_ += '\n';
    text_ += error.what();
  }
}

bool ConfigCheck::require(bool holds, const std::string& field, const std::string& problem) {
  if (!holds) found_.emplace_back(prefix_ + field, 0, problem);
  return holds;
}

void ConfigCheck::finish() const {
  if (!found_.empty()) throw ConfigErrors(found_);
}

}  // namespace spillway
