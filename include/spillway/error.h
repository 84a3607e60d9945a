#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "spillway/units.h"

namespace spillway {

/// Where bytes live.
enum class Tier : std::uint8_t {
  device,  ///< memory of a device
  host,    ///< host memory
  disk     ///< a file system
};
/// "device", "host" or "disk".
const char* to_string(Tier tier);

/// Root of everything Spillway throws. The message says what is wrong, with the numbers, and what
/// to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A tier has no room for a request. The state is as before the request.
class OutOfMemory : public Error {
 public:
  /// `who` names the requester in the message.
  OutOfMemory(Tier tier, Bytes requested, Bytes available, const std::string& who);
  Tier tier;        ///< the full tier
  Bytes requested;  ///< bytes asked for
  Bytes available;  ///< bytes left
};

/// A file operation failed.
class IoError : public Error {
 public:
  /// `what` is the operation, such as "open".
  IoError(const std::string& what, const std::string& path, int code);
  std::string path;  ///< of the file
  int code;          ///< errno
};

/// A file is damaged, truncated or of another format. Nothing of it is used.
class CorruptData : public Error {
 public:
  /// `problem` completes the sentence "'path' ...".
  CorruptData(const std::string& path, const std::string& problem);
  std::string path;  ///< of the file
};

/// A file is intact, but newer than this program.
class NewerFormat : public Error {
 public:
  /// `known` is the newest version that this program reads.
  NewerFormat(const std::string& path, std::uint64_t version, std::uint64_t known);
  std::string path;       ///< of the file
  std::uint64_t version;  ///< of the file
};

/// Another process uses a folder that only one process may use.
class InUse : public Error {
 public:
  /// `holder` is for example "process 4711".
  InUse(const std::string& folder, const std::string& holder);
};

/// Host 0 was lost before hosts trained together, or cannot be reached.
class HostLost : public Error {
 public:
  using Error::Error;
};

/// A field of a configuration is wrong.
class ConfigError : public Error {
 public:
  /// `problem` is the message without its place.
  ConfigError(const std::string& field, int line, const std::string& problem);
  std::string field;    ///< "train.batch_size"
  int line;             ///< from 1; 0 if no file is involved
  std::string problem;  ///< the message without its place
};

/// A device no longer works. Its content is lost; state in host memory or files is not.
class DeviceLost : public Error {
 public:
  /// `device` and `why` become the message.
  DeviceLost(const std::string& device, const std::string& why);
  std::string device;  ///< its name
  std::string why;     ///< the reason
};

/// The message of the exception that is being handled, of any type. Call it in a catch block only.
std::string current_reason();

/// A job cannot run on any device of the session, under any schedule.
class DoesNotFit : public Error {
 public:
  /// `or_else` names another remedy: "or ...".
  DoesNotFit(const std::string& what, Tier tier, Bytes needed, Bytes budget,
             const std::string& or_else = "");
  Tier tier;     ///< that is too small
  Bytes needed;  ///< the smallest budget that would fit
  Bytes budget;  ///< the present one
};

}  // namespace spillway
