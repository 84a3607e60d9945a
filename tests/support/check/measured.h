#pragma once

/// Tests of what follows from measured times.
namespace spillway::testing {

/// Whether what is measured anew at each call holds once in ten: other work on the machine disturbs
/// some measurements, a defect all of them.
template <typename F>
bool holds_once_in_ten(F measure) {
  for (int i = 0; i < 10; ++i) {
    if (measure()) return true;
  }
  return false;
}

}  // namespace spillway::testing
