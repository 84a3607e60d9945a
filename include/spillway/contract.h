#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// Everything that decides the bits of a job, as text by field: "model.hidden" -> "512".
using Contract = std::map<std::string, std::string>;

/// Prefix of fields that are hashes of probe results (trainer/profile/numerics.h).
inline constexpr std::string_view kFingerprint = "numerics.";

/// The field with a hash of the frozen parameters that checkpoints do not contain.
inline constexpr const char* kFrozenParameters = "model.frozen";

/// A field in which two contracts differ.
struct ContractDifference {
  std::string field;                ///< its name
  std::optional<std::string> then;  ///< value in the older contract; nothing: it lacks the field
  std::optional<std::string> now;   ///< value in the newer contract; nothing: it lacks the field
  bool operator==(const ContractDifference&) const = default;
};

/// All differences, in the order of fields. A fingerprint or kFrozenParameters that only one
/// contract has is no difference, because other versions of the program lack it.
std::vector<ContractDifference> differences(const Contract& then, const Contract& now);

/// "seed: was 7, is 8"; "train.dtype: was not set, is bf16".
std::string to_string(const ContractDifference& difference);

/// The differences, one per line, and what to do about them: the end of a message.
std::string explain(const std::vector<ContractDifference>& differences);

}  // namespace spillway
