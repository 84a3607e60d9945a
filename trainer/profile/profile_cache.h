#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "trainer/profile/known_costs.h"

namespace spillway {

/// Whether costs count that were measured when the machine was clearly busier than now.
enum class BusyCosts { drop, keep };

/// Keeps the costs of layers and the rates of the host between runs in one JSON file. They are
/// valid for one build of a program on one machine; the file has those of several, such as the
/// program and the package of Python. A damaged file, or one of another format, counts as empty and
/// is replaced. Costs that BusyCosts::drop leaves out count as unknown.
class ProfileCache {
 public:
  /// An empty `file` disables reading and writing. `made_by`: what a cost depends on besides its
  /// key. `load`: measures how busy the machine is.
  ProfileCache(std::filesystem::path file, const std::function<std::string()>& made_by,
               std::function<double()> load = measure_load, BusyCosts busy = BusyCosts::drop);

  /// Records time and load of a measurement.
  class Measurement {
   public:
    explicit Measurement(const std::function<double()>& load) : load_(load), before_(load()) {}
    /// Call after measuring.
    MeasuredAt end() const;

   private:
    const std::function<double()>& load_;
    double before_;
  };
  Measurement begin_measurement() const { return Measurement(load_); }

  std::optional<LayerProfile> find(const std::string& key) const;
  /// Of the costs that find() returns.
  std::optional<MeasuredAt> measured_at(const std::string& key) const;
  void add(const std::string& key, const LayerProfile& profile, const MeasuredAt& at);
  /// Times on one kind of device; the key names the kind too.
  std::optional<LayerTimes> find_times(const std::string& key) const;
  void add_times(const std::string& key, const LayerTimes& times, const MeasuredAt& at);
  /// Bytes per second and direction of one kind of device.
  std::optional<double> find_copy_rate(const std::string& kind) const;
  void add_copy_rate(const std::string& kind, double rate, const MeasuredAt& at);
  /// CPU contention; the key names the layer and the number of threads.
  std::optional<double> find_contention(const std::string& key) const;
  void add_contention(const std::string& key, double contention, const MeasuredAt& at);
  /// Seconds of an op besides its layers; the key names the kind of device and the layers.
  std::optional<double> find_op_start(const std::string& key) const;
  void add_op_start(const std::string& key, double seconds, const MeasuredAt& at);
  std::optional<HostRates> rates() const;
  void set_rates(const HostRates& rates, const MeasuredAt& at);
  /// Adds new entries to those that the file has now. Ignores errors: a cache is optional. After
  /// one, or while another program saves, the entries wait for the next call.
  void save();

 private:
  /// Nothing if the file is damaged or cannot be read.
  CostsOfBuilds read() const;
  void drop_busier_measurements();
  template <typename Cost>
  void add_to(CostEntries<Cost> KnownCosts::*kind, const std::string& key, const Cost& cost,
              const MeasuredAt& at);

  std::filesystem::path file_;
  std::string made_by_;
  std::function<double()> load_;
  KnownCosts known_;
  std::optional<KnownCosts> unsaved_;
};

/// Identifies this build of the program (or the library that Spillway is in), and the processor.
std::string this_build_and_machine();
/// The same and the kernels that LibTorch selects here (trainer/profile/numerics.h): all that costs
/// depend on.
std::string this_build_and_kernels();

}  // namespace spillway
