#include "models/graphs/tensor_types.h"

#include <map>
#include <string>

namespace spillway {

at::ScalarType scalar_type(ValueType type) {
  if (type == ValueType::boolean) return at::kBool;
  return type == ValueType::i64 ? at::kLong : at::kFloat;
}

at::ScalarType scalar_type(const TensorEntry& entry) {
  static const std::map<std::string, at::ScalarType> types{{"F32", at::kFloat},
                                                           {"BF16", at::kBFloat16},
                                                           {"I64", at::kLong},
                                                           {"I32", at::kInt},
                                                           {"BOOL", at::kBool}};
  return types.at(entry.dtype);
}

DType type_of(const ExportedSpec& spec, const ExportedParam& param) {
  if (param.tensor.dtype == "I64") return DType::i64;
  return param.is_statistic() ? DType::f32 : spec.dtype;
}

}  // namespace spillway
