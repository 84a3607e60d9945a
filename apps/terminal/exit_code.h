#pragma once

namespace spillway {

/// The exit code of the program.
enum ExitCode : int {
  kDone = 0,
  kTrialFailed = 1,
  kUsage = 2,
  kDoesNotFit = 3,
  kInterrupted = 130
};

}  // namespace spillway
