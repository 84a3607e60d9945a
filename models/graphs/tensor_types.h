#pragma once

#include <ATen/core/ScalarType.h>

#include "models/graphs/exported_spec.h"

namespace spillway {

at::ScalarType scalar_type(ValueType type);
/// Of a tensor as the file has it.
at::ScalarType scalar_type(const TensorEntry& entry);
/// The type in which layers of a model get a parameter.
DType type_of(const ExportedSpec& spec, const ExportedParam& param);

}  // namespace spillway
