#pragma once

/// The features that a run uses besides spilling.
namespace spillway::experiments {

struct Variant {
  const char* name;
  bool shares;  ///< false: one model after another
  bool double_buffer;
  double published;  ///< time relative to the full system
};
inline constexpr Variant kVariants[]{{"spilling alone", false, false, 13.05},
                                     {"+ sharing (SHARP)", true, false, 2.3},
                                     {"+ double buffer", true, true, 1}};

}  // namespace spillway::experiments
