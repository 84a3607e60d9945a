#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/spec/profile.h"
#include "trainer/profile/host_rates.h"

namespace spillway {

/// When a cost was measured, and how busy the machine was then.
struct MeasuredAt {
  std::int64_t unix_s = 0;
  double load = 0;  ///< as measure_load()
};

template <typename Cost>
struct CostEntry {
  Cost cost;
  MeasuredAt at;
};
template <typename Cost>
using CostEntries = std::map<std::string, CostEntry<Cost>>;

/// What one program knows of one machine, by key.
struct KnownCosts {
  CostEntries<LayerProfile> layers;
  CostEntries<LayerTimes> times;
  CostEntries<double> copies;
  CostEntries<double> contentions;
  CostEntries<double> op_starts;
  CostEntries<HostRates> rates;  ///< of "host"
};

/// The text of pilot.json. `made_by`: the program and machine that it is valid for.
std::string to_text(const KnownCosts& costs, const std::string& made_by);
/// Nothing if the text is of another format, program or machine, or does not match its hash. Throws
/// std::exception for any other text than to_text() writes.
KnownCosts parse_costs(const std::string& text, const std::string& made_by);

/// The hash in the file; `costs`: the text of its field of this name.
std::string hash_of_costs(const std::string& costs);

}  // namespace spillway
