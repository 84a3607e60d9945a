#pragma once

#include <cstddef>
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

/// What one build of a program knows of one machine, by key.
struct KnownCosts {
  CostEntries<LayerProfile> layers;
  CostEntries<LayerTimes> times;
  CostEntries<double> copies;
  CostEntries<double> contentions;
  CostEntries<double> op_starts;
  CostEntries<HostRates> rates;  ///< of "host"
};

/// Calls `visit` with the name of each kind of cost and its entries in each of `costs`.
template <typename Visit, typename... Costs>
void for_each_kind(const Visit& visit, Costs&... costs) {
  visit("layers", costs.layers...);
  visit("times", costs.times...);
  visit("copies", costs.copies...);
  visit("contentions", costs.contentions...);
  visit("op_starts", costs.op_starts...);
  visit("rates", costs.rates...);
}

/// By the program and machine that they are valid for.
using CostsOfBuilds = std::map<std::string, KnownCosts>;

/// Keeps the build `own` and, up to `most` in all, those that measured last.
void drop_oldest(CostsOfBuilds& builds, std::size_t most, const std::string& own);

inline constexpr int kCostsFormat = 8;
/// The text of pilot.json.
std::string to_text(const CostsOfBuilds& builds);
/// Nothing if the text is of another format or does not match its hash. Throws std::exception for
/// any other text than to_text() writes.
CostsOfBuilds parse_costs(const std::string& text);

/// The hash in the file; `builds`: the text of its field of this name.
std::string hash_of_costs(const std::string& builds);

}  // namespace spillway
