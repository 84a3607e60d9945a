#include "models/base/reason.h"

#include <c10/util/Exception.h>

namespace spillway {

std::string reason_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  if (!of_torch) return error.what();
  std::string reason = of_torch->what_without_backtrace();
  if (reason.starts_with("Expected more than 1 value per channel"))
    return reason +
           "; batch normalization takes its statistics over one virtual node: raise "
           "train.batch_size or lower train.virtual_nodes";
  const auto varies = reason.find(" does not have a deterministic implementation");
  if (varies == std::string::npos) return reason;
  return reason.substr(0, varies) +
         " has no deterministic implementation in LibTorch on this kind of device; use another "
         "operation";
}

}  // namespace spillway
