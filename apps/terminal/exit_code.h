#pragma once

namespace spillway {

/// What the program ends with.
enum ExitCode : int {
  kDone = 0,
  kTrialFailed = 1,
  kUsage = 2,
  kDoesNotFit = 3,
  kInterrupted = 130
};

}  // namespace spillway
