#include "runs/config/findings.h"

#include <algorithm>
#include <utility>

#include "runs/config/yaml_path.h"

namespace spillway {

void Findings::add(const std::string& field, int line, const std::string& problem) {
  if (known_.insert({field, problem}).second) all_.emplace_back(field, line, problem);
}

void Findings::add_unknown_key(const std::string& field, int line, const std::string& problem) {
  add(field, line, problem);
  unknown_keys_.insert(field);
}

bool Findings::concern(std::string_view section) const {
  return std::any_of(all_.begin(), all_.end(), [&](const ConfigError& error) {
    return lies_in(error.field, section) && !unknown_keys_.contains(error.field);
  });
}

void Findings::throw_if_any() const {
  if (all_.empty()) return;
  auto sorted = all_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  throw ConfigErrors(std::move(sorted));
}

}  // namespace spillway
