#include <exception>
#include <nlohmann/json.hpp>

#include "tests/fuzz/input.h"
#include "trainer/profile/known_costs.h"

namespace {

using namespace spillway;

void parse(const std::string& text) {
  try {
    const std::string written = to_text(parse_costs(text));
    testing::require(to_text(parse_costs(written)) == written, "what is written is read as it was");
  } catch (const std::exception&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = testing::to_string(data, size);
  parse(text);
  // Few inputs have the right hash and format; with them the reader gets further.
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("builds")) return 0;
  try {
    json["format"] = kCostsFormat;
    json["xxh3"] = hash_of_costs(json["builds"].dump());
    parse(json.dump());
  } catch (const nlohmann::json::exception&) {  // text that is not UTF-8 is not written
  }
  return 0;
}
