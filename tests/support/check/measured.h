#pragma once

/// For tests of properties that follow from measured times.
namespace spillway::testing {

/// True if `measure` succeeds once in ten tries: load disturbs some measurements, a defect all.
template <typename F>
bool holds_once_in_ten(F measure) {
  for (int i = 0; i < 10; ++i) {
    if (measure()) return true;
  }
  return false;
}

}  // namespace spillway::testing
