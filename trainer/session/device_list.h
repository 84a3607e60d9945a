#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/base/config_check.h"
#include "core/device/device.h"
#include "spillway/choices.h"
#include "spillway/device_config.h"

namespace spillway {

/// Adds a problem where a link is not one between `num_devices` devices.
void require_valid(const LinkConfig& link, const std::string& field, std::size_t num_devices,
                   ConfigCheck& check);

/// The devices of a session by number, with those that have left. Not thread-safe.
class DeviceList {
 public:
  enum class State : std::uint8_t { joining, present, leaving, gone };
  struct Entry {
    std::shared_ptr<Device> device;  // shared: one that shrank has two numbers
    Bytes budget = 0;                ///< when it joined
    Bytes link_bytes_per_s = 0;      ///< 0: none
    State state = State::present;
    bool remove_when_joined = false;
  };

  /// All devices split their memory alike. Throws ConfigErrors (`devices`, `devices[1].memory`,
  /// ...).
  DeviceList(const std::vector<DeviceConfig>& configs, const MemorySplit& split);

  /// Opens a device and gives it the next number. Throws ConfigError.
  Entry& add(const DeviceConfig& config, State state);
  /// Gives a device that has left a new number, with its present budget.
  Entry& add_again(std::size_t number);
  void remove_last() { entries_.pop_back(); }

  std::size_t size() const { return entries_.size(); }
  /// The kind of all devices.
  std::string exact_kind() const { return entries_[0].device->exact_kind(); }
  bool on_gpus() const { return entries_[0].device->gpu() >= 0; }
  /// Throws ConfigError (`devices`) if there is no such device, or it has left.
  Entry& at(int number);
  Entry& operator[](std::size_t number) { return entries_[number]; }
  const Entry& operator[](std::size_t number) const { return entries_[number]; }
  bool any_joining() const;
  /// Call after a run: joining devices become present, leaving ones are gone.
  void settle();
  /// Null if no device is present.
  std::shared_ptr<Device> first_present() const;
  /// Budgets of the devices that are present.
  std::vector<Bytes> budgets() const;
  /// Numbers of the devices that have left.
  std::vector<int> gone() const;

 private:
  Entry entry_of(std::size_t number, const DeviceConfig& config, State state) const;
  void require_kind(std::size_t number, const Device& device) const;

  const MemorySplit split_;
  std::vector<Entry> entries_;
};

template <>
inline constexpr std::array kNames<DeviceList::State>{"joining", "present", "leaving", "gone"};

}  // namespace spillway
