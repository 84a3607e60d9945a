#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "spillway/units.h"

namespace spillway {

/// Where bytes live.
enum class Tier : std::uint8_t { device, host, disk };
const char* to_string(Tier tier);

/// Root of everything Spillway throws. The message says what, with which numbers, and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A tier has no room for a request. State is as before the request.
class OutOfMemory : public Error {
 public:
  OutOfMemory(Tier tier, Bytes requested, Bytes available, const std::string& who);
  Tier tier;
  Bytes requested, available;
};

/// A file operation failed; `code` is errno.
class IoError : public Error {
 public:
  IoError(const std::string& what, const std::string& path, int code);
  std::string path;
  int code;
};

/// A file is not what it must be: damaged, cut off, or of another format. Nothing of it is used.
class CorruptData : public Error {
 public:
  CorruptData(const std::string& path, const std::string& problem);
  std::string path;
};

/// A file is sound, but of a version that this program does not know.
class NewerFormat : public Error {
 public:
  NewerFormat(const std::string& path, std::uint64_t version, std::uint64_t known);
  std::string path;
  std::uint64_t version;
};

/// Another process has a folder that only one may use.
class InUse : public Error {
 public:
  /// `holder`: "process 4711".
  InUse(const std::string& folder, const std::string& holder);
};

/// A field of a configuration is wrong. `line` counts from 1; 0 where no file is involved.
class ConfigError : public Error {
 public:
  ConfigError(const std::string& field, int line, const std::string& problem);
  std::string field;
  int line;
  std::string problem;  ///< the message without its place
};

/// A device no longer works. What was on it is gone; what has its home elsewhere is not.
class DeviceLost : public Error {
 public:
  DeviceLost(const std::string& device, const std::string& why);
  std::string device, why;
};

/// What the exception that is being handled says, whatever its type. Inside a catch block only.
std::string current_reason();

/// A job cannot run on any device of the session, whatever the schedule.
class DoesNotFit : public Error {
 public:
  /// `or_else`: what else would help, "or ...".
  DoesNotFit(const std::string& what, Tier tier, Bytes needed, Bytes budget,
             const std::string& or_else = "");
  Tier tier;
  Bytes needed, budget;
};

}  // namespace spillway
