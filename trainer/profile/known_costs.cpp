#include "trainer/profile/known_costs.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <nlohmann/json.hpp>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

Json to_json(const LayerProfile& p) {
  return {p.forward_s,  p.backward_s,     p.merge_s,      p.forward_peak,
          p.graph_peak, p.graph_retained, p.backward_peak};
}
Json to_json(const LayerTimes& times) { return {times.forward_s, times.backward_s}; }
Json to_json(const HostRates& r) {
  return {r.copy_bytes_per_s, r.update_bytes_per_s, r.reduce_bytes_per_s, r.matmul_flops_per_s};
}
Json to_json(double ratio) { return ratio; }

/// Seconds, or a load.
double number_in(const Json& json) {
  const double number = json.get<double>();
  if (std::isfinite(number) && number >= 0) return number;
  throw Error(fmt::format("a cost is {}", number));
}

double rate_in(const Json& json) {
  const double rate = number_in(json);
  return rate > 0 ? rate : throw Error("a rate is 0");
}

template <std::unsigned_integral Number>
Number integer_in(const Json& json) {
  return json.is_number_unsigned() ? json.get<Number>() : throw Error("a number is no integer");
}

void read(const Json& json, LayerProfile& profile) {
  profile = {.forward_s = number_in(json.at(0)),
             .backward_s = number_in(json.at(1)),
             .merge_s = number_in(json.at(2)),
             .forward_peak = integer_in<Bytes>(json.at(3)),
             .graph_peak = integer_in<Bytes>(json.at(4)),
             .graph_retained = integer_in<Bytes>(json.at(5)),
             .backward_peak = integer_in<Bytes>(json.at(6))};
}

void read(const Json& json, LayerTimes& times) {
  for (std::size_t i = 0; i < kPilotSizes.size(); ++i) {
    times.forward_s[i] = number_in(json.at(0).at(i));
    times.backward_s[i] = number_in(json.at(1).at(i));
  }
}

void read(const Json& json, HostRates& rates) {
  rates = {.copy_bytes_per_s = rate_in(json.at(0)),
           .update_bytes_per_s = rate_in(json.at(1)),
           .reduce_bytes_per_s = rate_in(json.at(2)),
           .matmul_flops_per_s = rate_in(json.at(3))};
}

void read(const Json& json, double& rate) { rate = rate_in(json); }

/// [cost, when, load] by key.
template <typename Cost>
Json all_to_json(const CostEntries<Cost>& entries) {
  Json all = Json::object();
  for (const auto& [key, entry] : entries) {
    all[key] = {to_json(entry.cost), entry.at.unix_s, entry.at.load};
  }
  return all;
}

template <typename Cost>
void read_all(const Json& all, CostEntries<Cost>& entries) {
  for (const auto& [key, value] : all.items()) {
    CostEntry<Cost>& entry = entries[key];
    read(value.at(0), entry.cost);
    entry.at = {.unix_s = static_cast<std::int64_t>(integer_in<std::uint64_t>(value.at(1))),
                .load = number_in(value.at(2))};
  }
}

std::int64_t newest(const KnownCosts& costs) {
  std::int64_t unix_s = 0;
  for_each_kind(
      [&](const char*, const auto& entries) {
        for (const auto& [key, entry] : entries) unix_s = std::max(unix_s, entry.at.unix_s);
      },
      costs);
  return unix_s;
}

}  // namespace

void drop_oldest(CostsOfBuilds& builds, std::size_t most, const std::string& own) {
  const auto rank = [&](const auto& build) {
    return std::pair(build.first == own, newest(build.second));
  };
  while (builds.size() > most) builds.erase(std::ranges::min_element(builds, {}, rank));
}

std::string hash_of_costs(const std::string& builds) {
  return fmt::format("{:x}", XXH3_64bits(builds.data(), builds.size()));
}

std::string to_text(const CostsOfBuilds& builds) {
  Json all = Json::object();
  for (const auto& [made_by, costs] : builds) {
    Json& of_build = all[made_by];
    for_each_kind([&](const char* name, const auto& each) { of_build[name] = all_to_json(each); },
                  costs);
  }
  return Json{{"format", kCostsFormat}, {"xxh3", hash_of_costs(all.dump())}, {"builds", all}}
      .dump();
}

CostsOfBuilds parse_costs(const std::string& text) {
  const Json json = Json::parse(text);
  if (json.at("format") != kCostsFormat) return {};
  const Json& all = json.at("builds");
  if (json.at("xxh3") != hash_of_costs(all.dump())) return {};
  CostsOfBuilds builds;
  for (const auto& [made_by, of_build] : all.items()) {
    for_each_kind([&](const char* name, auto& entries) { read_all(of_build.at(name), entries); },
                  builds[made_by]);
  }
  return builds;
}

}  // namespace spillway
