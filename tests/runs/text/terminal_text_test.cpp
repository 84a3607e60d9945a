#include "runs/text/terminal_text.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "runs/text/format.h"
#include "runs/text/table.h"
#include "runs/text/utf8.h"

namespace spillway {
namespace {

using As = PassingStream::As;

TEST(Utf8, ReadsCharactersOfEveryLength) {
  const struct {
    std::string text;
    char32_t code;
  } all[] = {
      {"a", U'a'}, {"\xC3\xA9", 0xE9}, {"\xE4\xB8\xAD", 0x4E2D}, {"\xF0\x9F\x98\x80", 0x1F600}};
  for (const auto& [text, code] : all) {
    const Utf8Char c = first_char(text + "x");
    EXPECT_TRUE(c.is_valid) << text;
    EXPECT_EQ(c.code, code) << text;
    EXPECT_EQ(c.num_bytes, text.size()) << text;
  }
}

TEST(Utf8, RejectsInvalidBytes) {
  for (const std::string text : {"\x80", "\xFF", "\xC3", "\xC3x", "\xC0\xAF", "\xE0\x80\xAF",
                                 "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(first_char(text).is_valid) << text;
    EXPECT_EQ(first_char(text).num_bytes, 1u) << text;
  }
}

TEST(TerminalText, EscapesOnlyControlCharacters) {
  EXPECT_EQ(fit_for_terminal("plain, \xC3\xA9 \xE4\xB8\xAD\ntwo lines\n"),
            "plain, \xC3\xA9 \xE4\xB8\xAD\ntwo lines\n");
  EXPECT_EQ(fit_for_terminal("\x1b[31m\a\r\t\x7F"), "\\x1b[31m\\x07\\x0d\\x09\\x7f");
  EXPECT_EQ(fit_for_terminal(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(fit_for_terminal("\xC2\x9B\x33\x31m"), "\\xc2\\x9b31m");       // C1
  EXPECT_EQ(fit_for_terminal("\xE2\x80\xAE txt"), "\\xe2\\x80\\xae txt");  // right to left
  EXPECT_EQ(fit_for_terminal("\xFF\xC3"), "\\xff\\xc3");
}

TEST(TerminalText, MeasuresItsWidth) {
  EXPECT_EQ(columns_of("abc"), 3u);
  EXPECT_EQ(columns_of("\xC3\xA9"), 1u);
  EXPECT_EQ(columns_of("e\xCC\x81"), 1u);
  EXPECT_EQ(columns_of("\xE4\xB8\xAD\xE6\x96\x87"), 4u);
  EXPECT_EQ(columns_of("\x1b"), 4u);
  EXPECT_EQ(cut_to_columns("\xE4\xB8\xAD\xE6\x96\x87", 3), "\xE4\xB8\xAD");
  EXPECT_EQ(cut_to_columns("ab\x1b", 5), "ab");
  EXPECT_EQ(cut_to_columns("abc", 5), "abc");
  EXPECT_EQ(padded("\xE4\xB8\xAD", 4), "\xE4\xB8\xAD  ");
  EXPECT_EQ(padded_left("\xC3\xA9", 3), "  \xC3\xA9");
}

TEST(TerminalText, AlignsColumnsOfATable) {
  Table table(std::vector<std::string>{"trial", "loss"});
  table.add({"\xE4\xB8\xAD\xE6\x96\x87", "1"});
  std::ostringstream out;
  table.print(out);
  EXPECT_EQ(out.str(), "  trial  loss\n  \xE4\xB8\xAD\xE6\x96\x87      1\n");
}

TEST(PassingStream, ForwardsAtAFlushAndAtItsEnd) {
  std::ostringstream sink;
  {
    PassingStream stream(sink, As::fit_for_terminal);
    stream << "\x1b" << 1;
    EXPECT_EQ(sink.str(), "");
    stream.flush();
    EXPECT_EQ(sink.str(), "\\x1b1");
    stream << '\xC3' << '\xA9';  // a character in two parts
  }
  EXPECT_EQ(sink.str(), "\\x1b1\xC3\xA9");
  PassingStream(sink, As::it_is) << "\x1b";
  EXPECT_TRUE(sink.str().ends_with("\x1b"));
}

TEST(PassingStream, DropsTextThatItHasNotForwarded) {
  std::ostringstream sink;
  PassingStream stream(sink, As::it_is);
  stream << "half a docu";
  EXPECT_TRUE(stream.take_back());
  stream << "whole" << std::flush << "more";
  EXPECT_FALSE(stream.take_back());
  stream.flush();
  EXPECT_EQ(sink.str(), "whole");
}

TEST(PassingStream, FailsIfItsTargetFails) {
  std::ostringstream sink;
  sink.setstate(std::ios::badbit);
  PassingStream stream(sink, As::it_is);
  EXPECT_FALSE(stream << "x" << std::flush);
}

}  // namespace
}  // namespace spillway
