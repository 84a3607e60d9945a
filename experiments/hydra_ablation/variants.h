#pragma once

/// What a run may use beyond spilling.
namespace spillway::experiments {

struct Variant {
  const char* name;
  bool shares;  ///< no: one model after another
  bool double_buffer;
  double published;  ///< time over that of the full system
};
inline constexpr Variant kVariants[]{{"spilling alone", false, false, 13.05},
                                     {"+ sharing (SHARP)", true, false, 2.3},
                                     {"+ double buffer", true, true, 1}};

}  // namespace spillway::experiments
