#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// Everything that the bits of a job depend on, as text by field: "model.hidden" -> "512".
using Contract = std::map<std::string, std::string>;

/// Fields that begin so are hashes of what probe operations gave (trainer/profile/numerics.h).
inline constexpr std::string_view kFingerprint = "numerics.";

/// A field that two contracts do not agree on; nothing where one of them lacks it.
struct ContractDifference {
  std::string field;
  std::optional<std::string> then, now;
  bool operator==(const ContractDifference&) const = default;
};

/// In the order of fields; none for equal contracts. A fingerprint that one of them lacks says
/// nothing: programs of another version know other probes.
std::vector<ContractDifference> differences(const Contract& then, const Contract& now);

/// "seed: was 7, is 8"; "lanes: was not there, is 2".
std::string to_string(const ContractDifference& difference);

/// These, a line each, and what to do about them, for the end of a message: another way may follow.
std::string explain(const std::vector<ContractDifference>& differences);

}  // namespace spillway
