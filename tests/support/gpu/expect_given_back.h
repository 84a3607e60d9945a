#pragma once

#include <gtest/gtest.h>

#include "tests/support/gpu/fake_cudart.h"

namespace spillway::testing {

/// At the end of a test on simulated GPUs: nothing of them is in use, and all work had a GPU and a
/// stream.
inline void expect_given_back() {
  EXPECT_EQ(fake_cuda().taken, 0u);
  EXPECT_EQ(fake_cuda().streams, 0);
  EXPECT_EQ(fake_cuda().events, 0);
  EXPECT_EQ(fake_cuda().on_no_gpu, 0);
  EXPECT_EQ(fake_cuda().on_no_stream, 0);
  EXPECT_EQ(fake_cuda().spinning, 0);
}

}  // namespace spillway::testing
