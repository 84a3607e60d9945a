#include "trainer/session/device_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/base/config_check.h"
#include "trainer/config/config_fields.h"
#include "trainer/torch/torch_gpu.h"

namespace spillway {
namespace {

void validate(const DeviceConfig& config, const std::string& field) {
  ConfigCheck check(field + ".");
  FieldCheck fields(check);
  visit_device(config, fields);
  const auto is_only_for = [&](DeviceKind kind, bool is_set, const std::string& key) {
    check.require(config.kind == kind || !is_set, key,
                  fmt::format("can only be used with kind: {}, and the kind of this device is {}; "
                              "remove it",
                              to_string(kind), to_string(config.kind)));
  };
  is_only_for(DeviceKind::cuda, config.index != 0, "index");
  is_only_for(DeviceKind::cpu, config.imitate != DeviceImitation{}, "imitate");
  check.finish();
}

std::shared_ptr<Device> open_gpu(const std::string& name, const DeviceConfig& config,
                                 const MemorySplit& split, const std::string& field) {
  try {
    if (!split.dedicated_activations()) {
      throw ConfigError("kind", 0,
                        "is cuda, but this session has no dedicated activation pool; set "
                        "activation_share, or use kind: cpu");
    }
    auto device = make_cuda_device(name, config.index, config.memory, split);
    load_torch_gpu();
    return {device.release(), [](Device* gone) {
              free_torch_workspaces(gone->compute().stream());
              delete gone;
            }};
  } catch (const ConfigError& error) {
    throw ConfigError(field + "." + error.field, 0, error.problem);
  }
}

std::shared_ptr<Device> open(std::size_t number, const DeviceConfig& config,
                             const MemorySplit& split) {
  const std::string field = fmt::format("devices[{}]", number),
                    name = fmt::format("{}:{}", to_string(config.kind), number);
  validate(config, field);
  if (config.kind == DeviceKind::cuda) return open_gpu(name, config, split, field);
  return make_cpu_device(name, config.memory,
                         {.link_bytes_per_s = config.imitate.link_bytes_per_s,
                          .slowdown = config.imitate.slowdown,
                          .fault = config.imitate.fault,
                          .split = split});
}

}  // namespace

void require_valid(const LinkConfig& link, const std::string& field, std::size_t num_devices,
                   ConfigCheck& check) {
  FieldCheck fields(check, field);
  visit_link(link, fields);
  const std::string key = field + "between";
  const std::set<int> devices(link.between.begin(), link.between.end());
  check.require(devices.size() == link.between.size() && devices.size() > 1, key,
                "must name at least two devices, each once");
  for (int device : devices) {
    if (device < 0 || static_cast<std::size_t>(device) < num_devices) continue;
    check.require(false, key,
                  fmt::format("names device {}, but the last one is {}; change it, add devices, or "
                              "write links=[] for none",
                              device, num_devices - 1));
  }
}

/// Kinds round differently: the placement of a virtual node would change its bits.
void DeviceList::require_kind(std::size_t number, const Device& device) const {
  if (entries_.empty() || exact_kind() == device.exact_kind()) return;
  throw ConfigError(fmt::format("devices[{}].kind", number), 0,
                    fmt::format("is {}, but that of the first device is {}; use devices of one "
                                "kind: other kinds compute other bits",
                                device.exact_kind(), exact_kind()));
}

DeviceList::Entry DeviceList::entry_of(std::size_t number, const DeviceConfig& config,
                                       State state) const {
  auto device = open(number, config, split_);
  require_kind(number, *device);
  return {.device = std::move(device),
          .budget = config.memory,
          .link_bytes_per_s = config.imitate.link_bytes_per_s,
          .state = state};
}

DeviceList::DeviceList(const std::vector<DeviceConfig>& configs, const MemorySplit& split)
    : split_(split) {
  if (configs.empty()) throw ConfigError("devices", 0, "is empty; name at least one device");
  ConfigCheck check;
  for (std::size_t number = 0; number < configs.size(); ++number) {
    check.run([&] { entries_.push_back(entry_of(number, configs[number], State::present)); });
  }
  check.finish();
}

DeviceList::Entry& DeviceList::add(const DeviceConfig& config, State state) {
  entries_.push_back(entry_of(size(), config, state));
  return entries_.back();
}

DeviceList::Entry& DeviceList::add_again(std::size_t number) {
  auto device = entries_[number].device;
  const Bytes budget = device->budget(), link = entries_[number].link_bytes_per_s;
  entries_.push_back({.device = std::move(device),
                      .budget = budget,
                      .link_bytes_per_s = link,
                      .state = State::joining});
  return entries_.back();
}

DeviceList::Entry& DeviceList::at(int number) {
  const auto position = static_cast<std::size_t>(number);
  if (number < 0 || position >= size()) {
    throw ConfigError(
        "devices", 0,
        fmt::format("have no number {}; they are numbered from 0 to {}", number, size() - 1));
  }
  if (entries_[position].state == State::gone) {
    throw ConfigError("devices", 0, fmt::format("number {} has left already", number));
  }
  return entries_[position];
}

std::vector<int> DeviceList::gone() const {
  std::vector<int> numbers;
  for (std::size_t d = 0; d < size(); ++d) {
    if (entries_[d].state == State::gone) numbers.push_back(static_cast<int>(d));
  }
  return numbers;
}

void DeviceList::settle() {
  for (Entry& entry : entries_) {
    const bool leaves = entry.state == State::leaving || entry.remove_when_joined;
    if (leaves) entry.state = State::gone;
    if (entry.state == State::joining) entry.state = State::present;
  }
}

bool DeviceList::any_joining() const {
  return std::ranges::count(entries_, State::joining, &Entry::state) > 0;
}

std::shared_ptr<Device> DeviceList::first_present() const {
  const auto found = std::ranges::find(entries_, State::present, &Entry::state);
  return found == entries_.end() ? nullptr : found->device;
}

std::vector<Bytes> DeviceList::budgets() const {
  std::vector<Bytes> budgets;
  for (const Entry& entry : entries_) {
    if (entry.state == State::present) budgets.push_back(entry.budget);
  }
  return budgets;
}

}  // namespace spillway
