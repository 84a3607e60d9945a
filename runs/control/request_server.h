#pragma once

#include <filesystem>

#include "runs/control/run_calls.h"
#include "runs/folder/requests.h"

namespace spillway {

/// Carries out what other processes ask of a run that is going on. Each call is durable in the log
/// before it has its answer.
class RequestServer {
 public:
  /// `calls` outlives it.
  RequestServer(RunCalls& calls, const std::filesystem::path& run_folder)
      : calls_(calls), inbox_(run_folder) {}

  /// Answers all requests that have come.
  void serve();

 private:
  RunCalls& calls_;
  RequestInbox inbox_;
};

}  // namespace spillway
