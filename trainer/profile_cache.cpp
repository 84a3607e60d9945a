#include "trainer/profile_cache.h"

#include <ATen/Version.h>
#include <xxhash.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "trainer/atomic_file.h"
#include "trainer/machine.h"

namespace spillway {
namespace {

using Json = nlohmann::json;
constexpr int kFormat = 4;

std::string checksum(const Json& costs) {
  const std::string text = costs.dump();
  std::ostringstream hex;
  hex << std::hex << XXH3_64bits(text.data(), text.size());
  return hex.str();
}

Json to_json(const LayerProfile& p) {
  return {p.forward_s,  p.backward_s,     p.merge_s,      p.forward_peak,
          p.graph_peak, p.graph_retained, p.backward_peak};
}

LayerProfile from_json(const Json& json) {
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

template <typename Cost>
Json all_to_json(const std::map<std::string, Cost>& known) {
  Json all = Json::object();
  for (const auto& [key, cost] : known) all[key] = to_json(cost);
  return all;
}

template <typename Cost>
std::optional<Cost> find_in(const std::map<std::string, Cost>& known, const std::string& key) {
  const auto found = known.find(key);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

ProfileCache::ProfileCache(std::filesystem::path file, std::string made_by)
    : file_(std::move(file)), made_by_(std::move(made_by)) {
  if (!file_.empty()) read();
}

void ProfileCache::read() {
  try {
    const Json json = Json::parse(std::ifstream(file_));
    const Json& costs = json.at("costs");
    if (json.at("format") != kFormat || json.at("made_by") != made_by_) return;
    if (json.at("xxh3") != checksum(costs)) return;
    for (const auto& [key, value] : costs.at("layers").items()) known_[key] = from_json(value);
    for (const auto& [key, value] : costs.at("times").items()) {
      known_times_[key] = times_from_json(value);
    }
    known_copy_rates_ = costs.at("copies").get<std::map<std::string, double>>();
    if (!costs.at("rates").is_null()) rates_ = rates_from_json(costs.at("rates"));
  } catch (const Json::exception&) {
    known_.clear();
    known_times_.clear();
    known_copy_rates_.clear();
    rates_.reset();
  }
}

std::optional<LayerProfile> ProfileCache::find(const std::string& key) const {
  return find_in(known_, key);
}

std::optional<LayerTimes> ProfileCache::find_times(const std::string& key) const {
  return find_in(known_times_, key);
}

std::optional<double> ProfileCache::find_copy_rate(const std::string& kind) const {
  return find_in(known_copy_rates_, kind);
}

void ProfileCache::add_copy_rate(const std::string& kind, double rate) {
  known_copy_rates_[kind] = rate;
  changed_ = true;
}

void ProfileCache::add(const std::string& key, const LayerProfile& profile) {
  known_[key] = profile;
  changed_ = true;
}

void ProfileCache::add_times(const std::string& key, const LayerTimes& times) {
  known_times_[key] = times;
  changed_ = true;
}

void ProfileCache::set_rates(const HostRates& rates) {
  rates_ = rates;
  changed_ = true;
}

void ProfileCache::save() {
  if (file_.empty() || !std::exchange(changed_, false)) return;
  const Json costs{{"layers", all_to_json(known_)},
                   {"times", all_to_json(known_times_)},
                   {"copies", known_copy_rates_},
                   {"rates", rates_ ? to_json(*rates_) : Json()}};
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
  std::ostringstream text;
  text << "program " << size << " " << time << "; processor " << processor_name() << "; "
       << at::get_cpu_capability();
  return text.str();
}

}  // namespace spillway
