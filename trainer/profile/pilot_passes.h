#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device/device.h"
#include "core/spec/profile.h"
#include "trainer/profile/pilot_layer.h"

namespace spillway {

/// A layer for each key; layers that cost the same have the same key.
using PilotLayers = std::map<std::string, std::unique_ptr<PilotLayer>>;

/// Peaks in bytes and seconds by key, of one virtual node. Measures over whole passes through the
/// model: a layer that runs repeatedly would find its code in the caches, and allocations take
/// longer while other layers keep graphs. `device`: null for this thread.
std::map<std::string, LayerProfile> measure_layers(const PilotLayers& layers, Device* device);

/// By kind of device and key.
using KindTimes = std::map<std::pair<std::string, std::string>, LayerTimes>;
/// Seconds on the compute queues of these devices, one of each kind, which take turns. The layers
/// have been measured before, so they do not throw.
KindTimes time_layers(const PilotLayers& layers,
                      const std::map<std::string, std::shared_ptr<Device>>& kinds);

/// Seconds of an op besides its layers while all these devices of one kind compute, each its own
/// layers (Pilot::measure_op_start()).
double time_op_start(const std::vector<PilotLayers>& layers, const std::vector<Device*>& devices);

}  // namespace spillway
