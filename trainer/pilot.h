#pragma once

#include <map>
#include <string>

#include "core/profile.h"
#include "models/model.h"

namespace spillway {

/// Measures what layers cost before a run: time and peak bytes of one virtual node, once per
/// distinct layer (kind, parameter shapes, edge shapes). Runs on the calling thread; its memory is
/// not any device's.
class Pilot {
 public:
  Profile measure(const Model& model);

 private:
  LayerProfile measure_layer(const Model& model, int layer);
  void measure_host();

  std::map<std::string, LayerProfile> known_;
  double copy_bytes_per_s_ = 0, update_bytes_per_s_ = 0, reduce_bytes_per_s_ = 0;
};

}  // namespace spillway
