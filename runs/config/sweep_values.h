#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runs/config/sweep_config.h"

namespace spillway {

/// The number of values of a parameter in a grid, at most kMaxTrials + 1; 0: it is continuous.
/// Integers of `int_uniform` and multiples of `q_uniform` are listed from min to max.
std::size_t grid_size(const SweepParameter& parameter);
/// Value `index` of the grid.
YamlNode grid_value(const SweepParameter& parameter, std::size_t index);

/// The value in trial `trial` of a random sweep: a pure function of the arguments, from the Philox
/// block {0, trial, h, h >> 32} of `seed`; h is the 64-bit FNV-1a hash of the key. Numbers are
/// rounded to 8 significant digits, which hides differences between C libraries in exp and log;
/// those of quantized distributions to the nearest multiple of q within the bounds.
YamlNode random_value(const SweepParameter& parameter, std::uint64_t seed, std::uint32_t trial);

/// Numbers of the first and the last multiple of q from min to max; first > last: there is none.
struct Multiples {
  double first, last;
};
Multiples multiples(const SweepParameter& parameter);

/// The shortest text that reads back as `value`; integers have no exponent.
std::string number_text(double value);

}  // namespace spillway
