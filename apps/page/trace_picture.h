#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "runs/log/run_json.h"

namespace spillway {

/// What a page draws of a trace.json.
struct TracePicture {
  Json timeline;                ///< {rows: queues, spans: [row, from, to, trial], end_s}, or null
  Json memory = Json::array();  ///< [{name, points: [time, bytes]}]
};

/// The real run of a trace; spans that no screen could tell apart are one. `trials`: their numbers
/// by name. Nothing if the text is empty or damaged.
TracePicture picture_of(const std::string& trace, const std::map<std::string, std::size_t>& trials);

}  // namespace spillway
