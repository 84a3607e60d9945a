#pragma once

#include <string>
#include <string_view>

#include "runs/log/run_json.h"
#include "trainer/storage/json_number.h"

/// A line of events.jsonl: a JSON object whose last field, `xxh3`, is the hash of all bytes before
/// it (docs/formats.md).
namespace spillway {

/// The line of an event, with its newline.
std::string event_line(const Json& event);

/// A line without its newline.
struct ParsedLine {
  Json event;             ///< without its hash
  bool has_xxh3 = false;  ///< lines of format 1 have none
};
/// Throws Error if the line is damaged.
ParsedLine parse_event_line(std::string_view line);

}  // namespace spillway
