#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/profile.h"
#include "trainer/host_rates.h"

namespace spillway {

/// Costs of layers and the rates of the host, kept between runs in one JSON file. They hold for one
/// build of the program on one machine; a file made by another, or a damaged one, counts as empty
/// and is replaced.
class ProfileCache {
 public:
  /// `file` empty: nothing is read or written. `made_by`: what a cost depends on besides its key.
  ProfileCache(std::filesystem::path file, std::string made_by);

  std::optional<LayerProfile> find(const std::string& key) const;
  void add(const std::string& key, const LayerProfile& profile);
  /// Of one kind of device, which the key names too.
  std::optional<LayerTimes> find_times(const std::string& key) const;
  void add_times(const std::string& key, const LayerTimes& times);
  /// Bytes a second, each way, of one kind of device.
  std::optional<double> find_copy_rate(const std::string& kind) const;
  void add_copy_rate(const std::string& kind, double rate);
  std::optional<HostRates> rates() const { return rates_; }
  void set_rates(const HostRates& rates);
  /// Writes what is new. A cache that cannot be written is none: no error.
  void save();

 private:
  void read();

  std::filesystem::path file_;
  std::string made_by_;
  std::map<std::string, LayerProfile> known_;
  std::map<std::string, LayerTimes> known_times_;
  std::map<std::string, double> known_copy_rates_;
  std::optional<HostRates> rates_;
  bool changed_ = false;
};

/// This build of the program, LibTorch, and the processor.
std::string this_build_and_machine();

}  // namespace spillway
