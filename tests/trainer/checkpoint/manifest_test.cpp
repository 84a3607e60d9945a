#include "trainer/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <span>

#include "core/base/xxh3.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"

namespace spillway::testing {
namespace {

const std::string kHash(32, 'a'), kOther = "0123456789abcdef0123456789abcdef";

Manifest small_manifest() {
  return {.job = "gpt lr=0.1",
          .step = 120,
          .build = "0.1.0",
          .contract = {{"model.hidden", "512"}, {"seed", "7"}},
          .block_bytes = 1000,
          .files = {{"weights.safetensors", 2500, {kHash, kOther, kHash}}, {"state.json", 0, {}}}};
}

/// The text with another body, and the hash that matches it.
std::string hashed(const std::string& body) {
  return body + "xxh3 " + xxh3(std::as_bytes(std::span(body))) + "\n";
}

std::string body() {
  const auto text = to_text(small_manifest());
  return text.substr(0, text.rfind("xxh3 "));
}

std::string replaced(const std::string& from, const std::string& to) {
  auto text = body();
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return hashed(text.replace(at, from.size(), to));
}

std::string problem_of(const std::string& text) {
  const auto error = thrown<CorruptData>([&] { parse_manifest(text, "/g/MANIFEST"); });
  EXPECT_EQ(error.path, "/g/MANIFEST");
  return error.what();
}

TEST(Manifest, HasExactlyTheseLines) {
  EXPECT_EQ(body(),
            "spillway-checkpoint 2\n"
            "job gpt lr=0.1\n"
            "step 120\n"
            "build 0.1.0\n"
            "contract model.hidden 512\n"
            "contract seed 7\n"
            "block_bytes 1000\n"
            "file 2500 weights.safetensors\n"
            "block " +
                kHash + "\nblock " + kOther + "\nblock " + kHash +
                "\n"
                "file 0 state.json\n");
}

TEST(Manifest, RoundTrips) {
  EXPECT_EQ(parse_manifest(to_text(small_manifest()), ""), small_manifest());
  const Manifest empty;
  EXPECT_EQ(parse_manifest(to_text(empty), ""), empty);
}

TEST(Manifest, AcceptsAnyByteInTexts) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  auto manifest = small_manifest();
  manifest.job = manifest.build = all;
  manifest.contract = {{all, all}, {"", " "}, {"%20", "%"}};
  manifest.files[0].name = "with space %\n\xFF";
  EXPECT_EQ(parse_manifest(to_text(manifest), ""), manifest);
}

TEST(Manifest, HasALengthIndependentOfHashes) {
  auto other = small_manifest();
  for (auto& hash : other.files[0].blocks) hash = std::string(32, '0');
  EXPECT_EQ(to_text(other).size(), to_text(small_manifest()).size());
}

TEST(Manifest, DetectsEveryFlippedByte) {
  const auto text = to_text(small_manifest());
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const int pattern : {0x01, 0x02, 0x20, 0x80, 0xFF}) {
      auto damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ pattern);
      EXPECT_THROW(parse_manifest(damaged, ""), CorruptData) << at << " " << pattern;
    }
  }
}

TEST(Manifest, DetectsEveryLostOrAddedByte) {
  const auto text = to_text(small_manifest());
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_THROW(parse_manifest(text.substr(0, length), ""), CorruptData) << length;
  EXPECT_THROW(parse_manifest(text + "\n", ""), CorruptData);
  EXPECT_THROW(parse_manifest(text + text, ""), CorruptData);
}

/// The hash matches, but to_text() never produces such a text.
TEST(Manifest, RefusesNonCanonicalText) {
  EXPECT_NE(problem_of(replaced("step 120", "step 0120")).find("canonical"), std::string::npos);
  for (const auto& text : {replaced("step 120", "step -1"),
                           replaced("step 120", "step 18446744073709551616"),
                           replaced("step 120\n", ""),
                           replaced("step 120", "step  120"),
                           replaced("job gpt", "job %41"),
                           replaced("job gpt", "job %4"),
                           replaced("job gpt lr=0.1", "job %"),
                           replaced("contract model", "contract zodel"),
                           replaced("contract seed 7", "contract seed"),
                           replaced("contract seed 7", "contract model.hidden 7"),
                           replaced("block_bytes 1000", "block_bytes 0"),
                           replaced("block_bytes 1000", "block_bytes 67108865"),
                           replaced("block_bytes 1000", "block_bytes 2000"),
                           replaced("file 2500 ", "file 3001 "),
                           replaced("file 2500 ", "file "),
                           replaced("file 0 state.json", "file 0 weights.safetensors"),
                           replaced("file 0 state.json", "file 0 "),
                           replaced("file 0 state.json", "file 0 .."),
                           replaced("file 0 state.json", "file 0 MANIFEST"),
                           replaced("file 0 state.json", "file 0 a/b"),
                           replaced("block a", "block A"),
                           replaced("block a", "block "),
                           replaced("file 0 state.json\n", "file 0 state.json"),
                           replaced("spillway-checkpoint 2", "spillway-checkpoint one"),
                           hashed(""),
                           hashed("\n"),
                           hashed(body() + "more\n"),
                           std::string()}) {
    EXPECT_THROW(parse_manifest(text, ""), CorruptData) << text;
  }
}

TEST(Manifest, ReportsAnIntactUnknownVersionAsNewer) {
  const auto text = hashed("spillway-checkpoint 3\nwhatever comes then\n");
  const auto error = thrown<NewerFormat>([&] { parse_manifest(text, "/g/MANIFEST"); });
  EXPECT_EQ(error.version, 3u);
  EXPECT_STREQ(error.what(),
               "/g/MANIFEST has format version 3, this program knows versions up to 2; use the "
               "newer Spillway that wrote it");
  auto damaged = text;
  damaged[30] ^= 1;
  EXPECT_THROW(parse_manifest(damaged, ""), CorruptData);
}

TEST(Manifest, WritesOnlyReadableText) {
  const auto rejects = [](const std::function<void(Manifest&)>& change) {
    auto manifest = small_manifest();
    change(manifest);
    EXPECT_THROW(to_text(manifest), Error);
  };
  rejects([](Manifest& m) { m.files[1].name = "a/b"; });
  rejects([](Manifest& m) { m.files[1].name = m.files[0].name; });
  rejects([](Manifest& m) { m.files[0].blocks.pop_back(); });
  rejects([](Manifest& m) { m.files[0].blocks[0] = "short"; });
  rejects([](Manifest& m) { m.block_bytes = 0; });
}

TEST(Manifest, SurvivesAnyText) {
  std::mt19937 random(1);
  for (int run = 0; run < 20'000; ++run) {
    auto text = body();
    for (auto edits = 1 + random() % 4; edits > 0; --edits) {
      const auto at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = static_cast<char>(random());
      else
        text.erase(at, random() % 20);
      if (text.empty()) text = "x";
    }
    try {
      const auto manifest = parse_manifest(hashed(text), "");
      EXPECT_EQ(to_text(manifest), hashed(text));
    } catch (const CorruptData&) {
    } catch (const NewerFormat&) {
    }
  }
}

}  // namespace
}  // namespace spillway::testing
