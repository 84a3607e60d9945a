#include "trainer/profile_cache.h"

#include <ATen/Version.h>
#include <xxhash.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "trainer/atomic_file.h"

namespace spillway {
namespace {

using Json = nlohmann::json;
constexpr int kFormat = 1;

std::string checksum(const Json& layers) {
  const std::string text = layers.dump();
  std::ostringstream hex;
  hex << std::hex << XXH3_64bits(text.data(), text.size());
  return hex.str();
}

Json to_json(const LayerProfile& p) {
  return {p.forward_s,  p.backward_s,     p.forward_peak,
          p.graph_peak, p.graph_retained, p.backward_peak};
}

LayerProfile from_json(const Json& json) {
  return {.forward_s = json.at(0),
          .backward_s = json.at(1),
          .forward_peak = json.at(2),
          .graph_peak = json.at(3),
          .graph_retained = json.at(4),
          .backward_peak = json.at(5)};
}

/// The first line of a file that begins with `key`, without it.
std::string line_of(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return line.substr(key.size());
  }
  return "";
}

}  // namespace

ProfileCache::ProfileCache(std::filesystem::path file, std::string made_by)
    : file_(std::move(file)), made_by_(std::move(made_by)) {
  if (!file_.empty()) read();
}

void ProfileCache::read() {
  try {
    const Json json = Json::parse(std::ifstream(file_));
    const Json& layers = json.at("layers");
    if (json.at("format") != kFormat || json.at("made_by") != made_by_) return;
    if (json.at("xxh3") != checksum(layers)) return;
    for (const auto& [key, value] : layers.items()) known_[key] = from_json(value);
  } catch (const Json::exception&) {
    known_.clear();
  }
}

std::optional<LayerProfile> ProfileCache::find(const std::string& key) const {
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void ProfileCache::add(const std::string& key, const LayerProfile& profile) {
  known_[key] = profile;
  changed_ = true;
}

void ProfileCache::save() {
  if (file_.empty() || !std::exchange(changed_, false)) return;
  Json layers = Json::object();
  for (const auto& [key, profile] : known_) layers[key] = to_json(profile);
  const Json json{
      {"format", kFormat}, {"made_by", made_by_}, {"xxh3", checksum(layers)}, {"layers", layers}};
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
  text << "program " << size << " " << time << "; processor"
       << line_of("/proc/cpuinfo", "model name") << "; " << at::get_cpu_capability();
  return text.str();
}

}  // namespace spillway
