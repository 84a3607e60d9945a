#pragma once

#include <cfenv>

namespace spillway {

/// Rounding to the nearest and denormal numbers for the calling thread, whatever its process chose
/// (fesetround(), -ffast-math, at::globalContext().setFlushDenormal()); restored in the end.
/// Threads that are made meanwhile inherit it.
class DefaultFloats {
 public:
  DefaultFloats() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { std::fesetenv(&callers_); }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  std::fenv_t callers_{};
};

}  // namespace spillway
