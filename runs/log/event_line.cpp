#include "runs/log/event_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "core/base/xxh3.h"
#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::string_view kKey = R"(,"xxh3":")", kEnd = R"("})";
constexpr std::size_t kDigits = 32;

std::string hash_of(std::string_view text) { return xxh3(std::as_bytes(std::span(text))); }

/// The text before the hash; empty if the line has no hash.
std::string_view hashed_part(std::string_view line) {
  const std::size_t tail = kKey.size() + kDigits + kEnd.size();
  if (line.size() <= tail || !line.ends_with(kEnd)) return {};
  const std::string_view part = line.substr(0, line.size() - tail);
  return line.substr(part.size(), kKey.size()) == kKey ? part : std::string_view{};
}

/// Whether a field may be any number; all others are 64-bit integers.
bool is_real(std::string_view key) {
  constexpr std::array<std::string_view, 16> kReal{"busy_share",
                                                   "compute_s_per_step",
                                                   "copy_hidden_share",
                                                   "copy_s",
                                                   "copy_wait_s",
                                                   "first_loss",
                                                   "gradient_norm",
                                                   "learning_rate",
                                                   "loss",
                                                   "max_grad_norm",
                                                   "metrics",
                                                   "steps",
                                                   "time_s",
                                                   "tokens_per_s",
                                                   "wall_s",
                                                   "weight_decay"};
  return std::ranges::find(kReal, key) != kReal.end();
}

/// Throws Error for a number that its field cannot hold.
void check_numbers(std::string_view key, const Json& value) {
  if (is_real(key)) return;
  if (value.is_number_float())
    throw Error(fmt::format("has a fraction in {}, which must be an integer", key));
  if (key == "evals" && value.is_array()) {  // pairs of step and loss
    for (const Json& pair : value) check_numbers("step", pair.at(0));
  } else if (value.is_object()) {
    for (const auto& [name, member] : value.items()) check_numbers(name, member);
  } else if (value.is_array()) {
    for (const Json& item : value) check_numbers(key, item);
  }
}

}  // namespace

std::string event_line(const Json& event) {
  std::string line = to_line(event);
  line.resize(line.size() - 2);  // the brace and the newline
  const std::string hash = hash_of(line);
  return line.append(kKey).append(hash).append(kEnd).append("\n");
}

ParsedLine parse_event_line(std::string_view line) {
  const std::string_view part = hashed_part(line);
  const bool has_xxh3 = !part.empty();
  if (has_xxh3 && line.substr(part.size() + kKey.size(), kDigits) != hash_of(part)) {
    throw Error("does not match its hash");
  }
  try {
    ParsedLine parsed{.event = Json::parse(line), .has_xxh3 = has_xxh3};
    if (has_xxh3) parsed.event.erase("xxh3");
    check_numbers("", parsed.event);
    return parsed;
  } catch (const Json::parse_error&) {
    throw Error("is not JSON");
  } catch (const Json::exception&) {
    throw Error("is not an event");
  }
}

}  // namespace spillway
