#pragma once

#include <cfenv>

namespace spillway {

/// Sets the calling thread to round to nearest and to keep denormals, whatever the process chose
/// (fesetround(), -ffast-math, at::globalContext().setFlushDenormal()). The destructor restores the
/// caller's settings. Threads created meanwhile inherit it.
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
