#include "spillway/error.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace spillway {

namespace {

struct TierText {
  const char *name, *unit, *limit, *remedy;
};
constexpr std::array<TierText, 3> kTiers{{
    {"device", "memory", "the budget is", "raise the memory of a device to that"},
    {"host", "memory", "the budget is", "raise host_memory to that"},
    {"disk", "space", "left are", "free some there"},
}};

const TierText& text_of(Tier tier) { return kTiers.at(static_cast<std::size_t>(tier)); }

std::string room_of(Tier tier) {
  return fmt::format("{} {}", text_of(tier).name, text_of(tier).unit);
}

/// "3.00 MiB (3145728 bytes)".
std::string exact(Bytes bytes) { return fmt::format("{} ({} bytes)", format_bytes(bytes), bytes); }

}  // namespace

const char* to_string(Tier tier) { return text_of(tier).name; }

OutOfMemory::OutOfMemory(Tier t, Bytes requested_bytes, Bytes available_bytes,
                         const std::string& who)
    : Error(fmt::format("{}: {} asked for {} but {} are left", room_of(t), who,
                        format_bytes(requested_bytes), format_bytes(available_bytes))),
      tier(t),
      requested(requested_bytes),
      available(available_bytes) {}

IoError::IoError(const std::string& what, const std::string& file, int error_code)
    : Error(fmt::format("{} {}: {}", what, file, std::strerror(error_code))),
      path(file),
      code(error_code) {}

CorruptData::CorruptData(const std::string& file, const std::string& problem)
    : Error(fmt::format("{} {}", file, problem)), path(file) {}

NewerFormat::NewerFormat(const std::string& file, std::uint64_t its_version, std::uint64_t known)
    : Error(fmt::format("{} has format version {}, this program knows versions up to {}; use the "
                        "newer Spillway that wrote it",
                        file, its_version, known)),
      path(file),
      version(its_version) {}

InUse::InUse(const std::string& folder, const std::string& holder)
    : Error(fmt::format("'{}' is in use by {}; wait for its end, stop it, or choose another folder",
                        folder, holder)) {}

ConfigError::ConfigError(const std::string& name, int at_line, const std::string& what_is_wrong)
    : Error(fmt::format("{}{}{}{}", at_line > 0 ? fmt::format("line {}: ", at_line) : "", name,
                        name.empty() ? "" : ": ", what_is_wrong)),
      field(name),
      line(at_line),
      problem(what_is_wrong) {}

DeviceLost::DeviceLost(const std::string& name, const std::string& cause)
    : Error(fmt::format("device {} is lost: {}", name, cause)), device(name), why(cause) {}

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
    : Error(fmt::format("{} does not fit: it needs {} of {}, {} {}; {}{}{}", what,
                        exact(needed_bytes), room_of(t), text_of(t).limit, exact(budget_bytes),
                        text_of(t).remedy, or_else.empty() ? "" : "; ", or_else)),
      tier(t),
      needed(needed_bytes),
      budget(budget_bytes) {}

}  // namespace spillway
