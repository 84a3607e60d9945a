#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "spillway/results.h"

namespace spillway {

/// Keys keep their insertion order.
using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// Converts a run's devices, bytes and times, real or simulated, to JSON and back, without trials
/// and trace. totals_of() throws Json::exception.
Json totals_json(const RunResult& result);
RunResult totals_of(const Json& json);

/// The part that all commands' documents share: `trials`, then the totals.
Json run_json(Json trials, const RunResult& result);

/// A swept value, which the log has as text: a number or truth value, or else the text.
Json value_of(const std::string& text);

/// Formats a document, indented.
std::string to_text(const Json& json);
/// Formats one line of a file.
std::string to_line(const Json& json);

}  // namespace spillway
