#pragma once

#include "models/graphs/exported_spec.h"
#include "spillway/adapter.h"

namespace spillway {

/// Freezes all parameters of a model and adds an adapter to its linear layers. New parameters come
/// last, in the model and in each layer, so those of the file stay where they are. Throws
/// ConfigError (`adapter`, `adapter.target_modules`, ...).
void add_adapter(ExportedSpec& spec, const LoraConfig& adapter);

}  // namespace spillway
