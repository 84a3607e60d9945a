#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "apps/terminal/exit_code.h"
#include "apps/terminal/signals.h"
#include "core/os/host_memory.h"

namespace spillway {

struct TrainOptions {
  std::string config_file;
  std::vector<std::string> overrides;  ///< "a.b=c"
  bool json = false;                   ///< one JSON document on `out`, everything else on `log`
  bool overwrite = false;              ///< replace the outputs of an earlier run
  std::filesystem::path pilot_cache;   ///< cache of measured costs; empty: none
  /// Descriptor of the stream that shows progress, which is redrawn in place on a terminal.
  int progress_file = -1;
  HostMemory machine = host_memory();  ///< which the run must fit
};

struct JoinOptions {
  std::string endpoint;                ///< of host 0, "HOST:PORT"
  std::vector<std::string> overrides;  ///< "a.b=c"
  bool json = false;                   ///< as of the others; it has no results
  std::filesystem::path pilot_cache;
  int progress_file = -1;
  HostMemory machine = host_memory();
};

struct ResumeOptions {
  std::string folder;                  ///< the run's output_dir
  std::vector<std::string> overrides;  ///< "a.b=c", of fields outside the contract
  bool retry_failed = false;           ///< also resume trials that failed
  std::string trial;                   ///< also resume this one, which was paused or stopped
  bool json = false;
  std::filesystem::path pilot_cache;
  int progress_file = -1;
  HostMemory machine = host_memory();
};

/// `spillway resume`: resumes the trials that have not ended from their newest intact checkpoint,
/// or from the beginning. Throws what train() throws; ConfigErrors if an override changes a
/// contract.
ExitCode resume(const ResumeOptions& options, std::ostream& out, std::ostream& log,
                const Requests& requests);

/// `spillway train`. Writes nothing to disk before the configuration is valid and every trial fits.
/// Throws ConfigErrors or ConfigError, DoesNotFit, IoError.
ExitCode train(const TrainOptions& options, std::ostream& out, std::ostream& log,
               const Requests& requests);

/// `spillway join`: trains as a further host with one that waits at an endpoint, and writes
/// nothing. Throws what train() throws, and Error if nobody answers.
ExitCode join(const JoinOptions& options, std::ostream& out, std::ostream& log,
              const Requests& requests);

}  // namespace spillway
