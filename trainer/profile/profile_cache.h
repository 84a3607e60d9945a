#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/spec/profile.h"
#include "trainer/profile/host_rates.h"

namespace spillway {

/// When a cost was measured, and how busy the machine was then.
struct MeasuredAt {
  std::int64_t unix_s = 0;
  double load = 0;  ///< as measure_load()
};

/// Costs of layers and the rates of the host, kept between runs in one JSON file. They hold for one
/// build of the program on one machine; a file made by another, one that is damaged or no file at
/// all counts as empty and is replaced. What was measured while the machine was clearly busier than
/// it is now counts as unknown.
class ProfileCache {
 public:
  /// `file` empty: nothing is read or written. `made_by`: what a cost depends on besides its key.
  /// `load`: says how busy the machine is now.
  ProfileCache(std::filesystem::path file, const std::function<std::string()>& made_by,
               std::function<double()> load = measure_load);

  /// For costs that are about to be measured.
  class Measurement {
   public:
    explicit Measurement(const std::function<double()>& load) : load_(load), before_(load()) {}
    /// Of what was measured since.
    MeasuredAt end() const;

   private:
    const std::function<double()>& load_;
    double before_;
  };
  Measurement begin_measurement() const { return Measurement(load_); }

  std::optional<LayerProfile> find(const std::string& key) const;
  void add(const std::string& key, const LayerProfile& profile, const MeasuredAt& at);
  /// Of one kind of device, which the key names too.
  std::optional<LayerTimes> find_times(const std::string& key) const;
  void add_times(const std::string& key, const LayerTimes& times, const MeasuredAt& at);
  /// Bytes a second, each way, of one kind of device.
  std::optional<double> find_copy_rate(const std::string& kind) const;
  void add_copy_rate(const std::string& kind, double rate, const MeasuredAt& at);
  std::optional<HostRates> rates() const;
  void set_rates(const HostRates& rates, const MeasuredAt& at);
  /// Writes what is new. A cache that cannot be written is none: no error.
  void save();

 private:
  template <typename Cost>
  struct Entry {
    Cost cost;
    MeasuredAt at;
  };
  template <typename Cost>
  using Entries = std::map<std::string, Entry<Cost>>;
  struct Costs {
    Entries<LayerProfile> layers;
    Entries<LayerTimes> times;
    Entries<double> copies;
    Entries<HostRates> rates;  // of "host"
  };
  Costs read() const;
  void drop_those_of_a_busier_machine();
  template <typename Cost>
  void add_to(Entries<Cost>& entries, const std::string& key, const Cost& cost,
              const MeasuredAt& at);

  std::filesystem::path file_;
  std::string made_by_;
  std::function<double()> load_;
  Costs known_;
  bool changed_ = false;
};

/// This build of the program, LibTorch, and the processor.
std::string this_build_and_machine();
/// What costs depend on: these, and the kernels that LibTorch chooses here
/// (trainer/profile/numerics.h).
std::string this_build_and_kernels();

}  // namespace spillway
