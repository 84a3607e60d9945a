#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "spillway/results.h"

namespace spillway {

/// Keys keep the order in which they were put.
using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// Devices, bytes and times of a run, real or simulated, and the way back: without trials and
/// trace. totals_of() throws Json::exception.
Json totals_json(const RunResult& result);
RunResult totals_of(const Json& json);

/// What the documents of all commands share: `trials`, then the totals.
Json run_json(Json trials, const RunResult& result);

/// As text of a document of its own.
std::string to_text(const Json& json);
/// As one line of a file.
std::string to_line(const Json& json);

}  // namespace spillway
