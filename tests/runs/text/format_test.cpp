#include "runs/text/format.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>

#include "runs/text/csv.h"
#include "runs/text/safe_name.h"

namespace spillway {
namespace {

TEST(FormatNumber, IsTheShortestTextThatReadsBack) {
  EXPECT_EQ(format_number(0.003), "0.003");
  EXPECT_EQ(format_number(1e-8), "1e-08");
  EXPECT_EQ(format_number(1), "1");
  EXPECT_EQ(format_number(-0.5), "-0.5");
  for (const double value :
       {0.1, 1.0 / 3, 1e300, -2.2250738585072014e-308, std::numeric_limits<double>::denorm_min(),
        std::numeric_limits<double>::max(), 123456789.125}) {
    EXPECT_EQ(std::strtod(format_number(value).c_str(), nullptr), value);
  }
}

TEST(FormatFixed, HasThatManyDecimals) {
  EXPECT_EQ(format_fixed(2.4127, 3), "2.413");
  EXPECT_EQ(format_fixed(2.5, 0), "2");
  EXPECT_EQ(format_fixed(-1, 2), "-1.00");
  EXPECT_EQ(format_fixed(std::numeric_limits<double>::max(), 20).size(), 309u + 1 + 20);
}

TEST(FormatCount, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.4), "999");
  EXPECT_EQ(format_count(999.6), "1.00k");
  EXPECT_EQ(format_count(1000), "1.00k");
  EXPECT_EQ(format_count(9'990), "9.99k");
  EXPECT_EQ(format_count(9'996), "10.0k");
  EXPECT_EQ(format_count(12'345), "12.3k");
  EXPECT_EQ(format_count(99'960), "100k");
  EXPECT_EQ(format_count(999'499), "999k");
  EXPECT_EQ(format_count(999'501), "1.00M");
  EXPECT_EQ(format_count(1'200'000), "1.20M");
  EXPECT_EQ(format_count(3.5e9), "3.50G");
  EXPECT_EQ(format_count(2.5e12), "2.50T");
  EXPECT_EQ(format_count(4e15), "4000T");
  EXPECT_EQ(format_count(-12'345), "-12.3k");
}

TEST(FormatRounded, HasFourDigitsIfThatIsShorter) {
  EXPECT_EQ(format_rounded("0.0037255056"), "0.003726");
  EXPECT_EQ(format_rounded("0.190256"), "0.1903");
  EXPECT_EQ(format_rounded("1e-3"), "1e-3");
  EXPECT_EQ(format_rounded("256"), "256");
  EXPECT_EQ(format_rounded("12345678"), "12345678");
  EXPECT_EQ(format_rounded("123456789012"), "1.235e+11");
  EXPECT_EQ(format_rounded("[128, 64]"), "[128, 64]");
  EXPECT_EQ(format_rounded("3 layers"), "3 layers");
  EXPECT_EQ(format_rounded(""), "");
}

TEST(SafeName, KeepsWhatANameOfAFileMayHold) {
  EXPECT_EQ(safe_name("learning_rate=3e-3,hidden_size=128"), "learning_rate=3e-3,hidden_size=128");
  EXPECT_EQ(safe_name("a/b c:d\n"), "a_b_c_d_");
  EXPECT_EQ(safe_name("a.b+C9"), "a.b+C9");
}

TEST(SafeName, KeepsLettersOfAllScripts) {
  EXPECT_EQ(safe_name("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(safe_name("\xE4\xB8\xAD\xE6\x96\x87"), "\xE4\xB8\xAD\xE6\x96\x87");
  EXPECT_EQ(safe_name("a\xC2\xA0\xE2\x80\xAE\xE3\x80\x80\xC2\x9B"), "a____");  // show nothing
  EXPECT_EQ(safe_name("\xFF\xC3"), "__");
}

TEST(SafeName, IsNeitherEmptyNorHidden) {
  EXPECT_EQ(safe_name(""), "_");
  EXPECT_EQ(safe_name("."), "_.");
  EXPECT_EQ(safe_name("../x"), "_.._x");
}

TEST(SafeName, IsNeverTooLong) {
  EXPECT_EQ(safe_name(std::string(150, 'a')), std::string(150, 'a'));
  EXPECT_EQ(safe_name(std::string(1000, 'a')), std::string(150, 'a'));
  EXPECT_EQ(safe_name(std::string(1000, '.')), "_" + std::string(149, '.'));
  EXPECT_EQ(safe_name(std::string(149, 'a') + "\xC3\xA9"), std::string(149, 'a'));
}

TEST(Csv, WritesFormulasAsText) {
  EXPECT_EQ(csv_line({"=1+1", "+x", "-x", "@x", "\tx", "\rx"}),
            "'=1+1,'+x,'-x,'@x,'\tx,\"'\rx\"\r\n");
  EXPECT_EQ(csv_line({"-1.5", "+2e-3", "-inf", "-nan", "1=1", ""}),
            "-1.5,+2e-3,-inf,-nan,1=1,\r\n");
}

TEST(Format, WritesDurations) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(59.6), "1:00 min");
  EXPECT_EQ(format_duration(125), "2:05 min");
  EXPECT_EQ(format_duration(3599.6), "1:00 h");
  EXPECT_EQ(format_duration(12'000), "3:20 h");
  EXPECT_EQ(format_duration(354'000), "4.1 days");
}

}  // namespace
}  // namespace spillway
