#include "spillway/error.h"

#include <cstring>

namespace spillway {

const char* to_string(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
    case Tier::disk:
      return "disk";
  }
  return "?";
}

namespace {

const char* remedy(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "raise the memory of a device, or use more virtual nodes, which makes each smaller";
    case Tier::host:
      return "raise that budget";
    case Tier::disk:
      return "free some there";
  }
  return "?";
}

/// "the budget is", or what stands for it.
const char* limit_of(Tier tier) { return tier == Tier::disk ? "left are" : "the budget is"; }

std::string room_of(Tier tier) {
  return std::string(to_string(tier)) + (tier == Tier::disk ? " space" : " memory");
}

}  // namespace

OutOfMemory::OutOfMemory(Tier t, Bytes requested_bytes, Bytes available_bytes,
                         const std::string& who)
    : Error(room_of(t) + ": " + who + " asked for " + format_bytes(requested_bytes) + " but " +
            format_bytes(available_bytes) + " are left"),
      tier(t),
      requested(requested_bytes),
      available(available_bytes) {}

IoError::IoError(const std::string& what, const std::string& file, int error_code)
    : Error(what + " " + file + ": " + std::strerror(error_code)), path(file), code(error_code) {}

CorruptData::CorruptData(const std::string& file, const std::string& problem)
    : Error(file + " " + problem), path(file) {}

NewerFormat::NewerFormat(const std::string& file, std::uint64_t its_version, std::uint64_t known)
    : Error(file + " has format version " + std::to_string(its_version) +
            ", this program knows versions up to " + std::to_string(known) +
            "; use the newer Spillway that wrote it"),
      path(file),
      version(its_version) {}

InUse::InUse(const std::string& folder, const std::string& holder)
    : Error("'" + folder + "' is in use by " + holder +
            "; wait for its end, stop it, or choose another folder") {}

ConfigError::ConfigError(const std::string& name, int at_line, const std::string& what_is_wrong)
    : Error((at_line > 0 ? "line " + std::to_string(at_line) + ": " : std::string()) +
            (name.empty() ? what_is_wrong : name + ": " + what_is_wrong)),
      field(name),
      line(at_line),
      problem(what_is_wrong) {}

DeviceLost::DeviceLost(const std::string& name, const std::string& cause)
    : Error("device " + name + " is lost: " + cause), device(name), why(cause) {}

std::string current_reason() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception was thrown whose type is not derived from std::exception";
  }
}

DoesNotFit::DoesNotFit(const std::string& what, Tier t, Bytes needed_bytes, Bytes budget_bytes,
                       const std::string& or_else)
    : Error(what + " does not fit: it needs " + format_bytes(needed_bytes) + " (" +
            std::to_string(needed_bytes) + " bytes) of " + room_of(t) + ", " + limit_of(t) + " " +
            format_bytes(budget_bytes) + " (" + std::to_string(budget_bytes) + " bytes); " +
            remedy(t) + (or_else.empty() ? "" : "; " + or_else)),
      tier(t),
      needed(needed_bytes),
      budget(budget_bytes) {}

}  // namespace spillway
