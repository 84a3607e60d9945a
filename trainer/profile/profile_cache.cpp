#include "trainer/profile/profile_cache.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "spillway/error.h"
#include "trainer/profile/machine.h"
#include "trainer/profile/numerics.h"
#include "trainer/storage/atomic_file.h"

namespace spillway {
namespace {

using Json = nlohmann::json;
constexpr int kFormat = 5;
/// A difference of loads that makes a new measurement worthwhile.
constexpr double kClearlyBusier = 0.1;

std::string checksum(const Json& costs) {
  const std::string text = costs.dump();
  return fmt::format("{:x}", XXH3_64bits(text.data(), text.size()));
}

Json to_json(const LayerProfile& p) {
  return {p.forward_s,  p.backward_s,     p.merge_s,      p.forward_peak,
          p.graph_peak, p.graph_retained, p.backward_peak};
}

LayerProfile profile_from_json(const Json& json) {
  return {.forward_s = json.at(0),
          .backward_s = json.at(1),
          .merge_s = json.at(2),
          .forward_peak = json.at(3),
          .graph_peak = json.at(4),
          .graph_retained = json.at(5),
          .backward_peak = json.at(6)};
}

Json to_json(const LayerTimes& times) { return {times.forward_s, times.backward_s}; }

LayerTimes times_from_json(const Json& json) {
  return {.forward_s = json.at(0), .backward_s = json.at(1)};
}

Json to_json(const HostRates& r) {
  return {r.copy_bytes_per_s, r.update_bytes_per_s, r.reduce_bytes_per_s, r.matmul_flops_per_s};
}

HostRates rates_from_json(const Json& json) {
  return {.copy_bytes_per_s = json.at(0),
          .update_bytes_per_s = json.at(1),
          .reduce_bytes_per_s = json.at(2),
          .matmul_flops_per_s = json.at(3)};
}

Json to_json(double rate) { return rate; }

template <typename Cost>
Cost cost_from_json(const Json& json) {
  if constexpr (std::is_same_v<Cost, LayerProfile>) {
    return profile_from_json(json);
  } else if constexpr (std::is_same_v<Cost, LayerTimes>) {
    return times_from_json(json);
  } else if constexpr (std::is_same_v<Cost, HostRates>) {
    return rates_from_json(json);
  } else {
    return json;
  }
}

/// [cost, when, load] by key.
template <typename Entries>
Json all_to_json(const Entries& entries) {
  Json all = Json::object();
  for (const auto& [key, entry] : entries) {
    all[key] = {to_json(entry.cost), entry.at.unix_s, entry.at.load};
  }
  return all;
}

template <typename Entries>
void all_from_json(const Json& all, Entries& entries) {
  using Entry = typename Entries::mapped_type;
  for (const auto& [key, value] : all.items()) {
    entries[key] = Entry{.cost = cost_from_json<decltype(Entry::cost)>(value.at(0)),
                         .at = {.unix_s = value.at(1), .load = value.at(2)}};
  }
}

template <typename Entries>
auto find_in(const Entries& entries, const std::string& key) {
  using Cost = decltype(Entries::mapped_type::cost);
  const auto found = entries.find(key);
  return found == entries.end() ? std::optional<Cost>() : std::optional<Cost>(found->second.cost);
}

constexpr const char* kHost = "host";

}  // namespace

MeasuredAt ProfileCache::Measurement::end() const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.unix_s = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
          .load = std::max(before_, load_())};
}

ProfileCache::ProfileCache(std::filesystem::path file, const std::function<std::string()>& made_by,
                           std::function<double()> load)
    : file_(std::move(file)), load_(std::move(load)) {
  if (file_.empty()) {
    load_ = [] { return 0.0; };  // unused without a file
    return;
  }
  made_by_ = made_by();
  try {
    known_ = read();
  } catch (const std::exception&) {  // damaged, or it cannot be read
  }
  drop_busier_measurements();
}

ProfileCache::Costs ProfileCache::read() const {
  if (!std::filesystem::is_regular_file(file_)) return {};  // a pipe would never end
  const Json json = Json::parse(std::ifstream(file_));
  const Json& costs = json.at("costs");
  if (json.at("format") != kFormat || json.at("made_by") != made_by_) return {};
  if (json.at("xxh3") != checksum(costs)) return {};
  Costs known;
  all_from_json(costs.at("layers"), known.layers);
  all_from_json(costs.at("times"), known.times);
  all_from_json(costs.at("copies"), known.copies);
  all_from_json(costs.at("rates"), known.rates);
  return known;
}

void ProfileCache::drop_busier_measurements() {
  std::optional<double> now;
  const auto drop = [&](auto& entries) {
    std::erase_if(entries, [&](const auto& each) {
      const double then = each.second.at.load;
      if (then < kClearlyBusier) return false;  // whatever the load is now
      if (!now) now = load_();
      return then >= *now + kClearlyBusier;
    });
  };
  drop(known_.layers);
  drop(known_.times);
  drop(known_.copies);
  drop(known_.rates);
}

template <typename Cost>
void ProfileCache::add_to(Entries<Cost>& entries, const std::string& key, const Cost& cost,
                          const MeasuredAt& at) {
  entries[key] = {cost, at};
  changed_ = true;
}

std::optional<LayerProfile> ProfileCache::find(const std::string& key) const {
  return find_in(known_.layers, key);
}

std::optional<MeasuredAt> ProfileCache::measured_at(const std::string& key) const {
  const auto found = known_.layers.find(key);
  return found == known_.layers.end() ? std::nullopt : std::optional(found->second.at);
}

std::optional<LayerTimes> ProfileCache::find_times(const std::string& key) const {
  return find_in(known_.times, key);
}

std::optional<double> ProfileCache::find_copy_rate(const std::string& kind) const {
  return find_in(known_.copies, kind);
}

std::optional<HostRates> ProfileCache::rates() const { return find_in(known_.rates, kHost); }

void ProfileCache::add(const std::string& key, const LayerProfile& profile, const MeasuredAt& at) {
  add_to(known_.layers, key, profile, at);
}

void ProfileCache::add_times(const std::string& key, const LayerTimes& times,
                             const MeasuredAt& at) {
  add_to(known_.times, key, times, at);
}

void ProfileCache::add_copy_rate(const std::string& kind, double rate, const MeasuredAt& at) {
  add_to(known_.copies, kind, rate, at);
}

void ProfileCache::set_rates(const HostRates& rates, const MeasuredAt& at) {
  add_to(known_.rates, kHost, rates, at);
}

void ProfileCache::save() {
  if (file_.empty() || !std::exchange(changed_, false)) return;
  const Json costs{{"layers", all_to_json(known_.layers)},
                   {"times", all_to_json(known_.times)},
                   {"copies", all_to_json(known_.copies)},
                   {"rates", all_to_json(known_.rates)}};
  const Json json{
      {"format", kFormat}, {"made_by", made_by_}, {"xxh3", checksum(costs)}, {"costs", costs}};
  try {
    std::error_code error;
    std::filesystem::create_directories(file_.parent_path(), error);
    AtomicFile out(file_);
    out.write(json.dump());
    out.commit();
  } catch (const IoError&) {
  }
}

std::string this_build_and_machine() {
  std::error_code error;
  const std::filesystem::path program = "/proc/self/exe";
  const auto size = std::filesystem::file_size(program, error);
  const auto time = std::filesystem::last_write_time(program, error).time_since_epoch().count();
  return fmt::format("program {} {}; processor {}; {}", size, time, processor_name(),
                     at::get_cpu_capability());
}

std::string this_build_and_kernels() {
  const Numerics& here = numerics();
  return fmt::format("{}; numerics {} in {} bytes", this_build_and_machine(), here.xxh3(),
                     here.activation_bytes());
}

}  // namespace spillway
