#include "spillway/units.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway {
namespace {

TEST(Units, UsesBinaryLiterals) {
  EXPECT_EQ(3_KiB, 3072u);
  EXPECT_EQ(2_MiB, 2097152u);
  EXPECT_EQ(5_GiB, 5368709120u);
}

TEST(Units, RoundsUpToMultiples) {
  EXPECT_EQ(round_up(0, kPage), 0u);
  EXPECT_EQ(round_up(1, kPage), kPage);
  EXPECT_EQ(round_up(kPage, kPage), kPage);
  EXPECT_EQ(round_up(kPage + 1, kPage), 2 * kPage);
}

TEST(Units, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("17B"), 17u);
  EXPECT_EQ(parse_bytes("64k"), 64_KiB);
  EXPECT_EQ(parse_bytes("12MiB"), 12_MiB);
  EXPECT_EQ(parse_bytes("3g"), 3_GiB);
  EXPECT_EQ(parse_bytes("2TiB"), 2048_GiB);
  EXPECT_EQ(parse_bytes("1KB"), 1000u);
  EXPECT_EQ(parse_bytes("1.5 GB"), 1500000000u);
  EXPECT_EQ(parse_bytes("  0.5 KiB "), 512u);
  EXPECT_EQ(parse_bytes("0"), 0u);
}

TEST(Units, RefusesOtherText) {
  for (const char* text : {"", " ", "MiB", "-1", "-1MiB", "12XB", "12MiBs", "12 M B", "1,5GB",
                           "0x10", "nan", "inf", "1e30", "99999999TiB", "+5", "12Mi", "k"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << '"' << text << '"';
  }
}

TEST(Units, FormatsRatesInBytesPerSecond) {
  EXPECT_EQ(parse_rate("2GB/s"), 2'000'000'000u);
  EXPECT_EQ(parse_rate(" 1.5 MiB/s "), 1536_KiB);
  EXPECT_EQ(parse_rate("4096 /s"), 4096u);
  for (const char* text : {"", "/s", "2GB", "2GB/min", "2GB/s/s", "GB/s", "-1GB/s", "2GB/ s"}) {
    EXPECT_FALSE(parse_rate(text).has_value()) << '"' << text << '"';
  }
  EXPECT_EQ(format_rate(1536_KiB), "1.50 MiB/s");
  EXPECT_EQ(format_rate(17), "17 B/s");
}

TEST(Units, FormatsWithThreeDigitsOrMore) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536_KiB), "1.50 MiB");
  EXPECT_EQ(format_bytes(150_GiB), "150.0 GiB");
  EXPECT_EQ(format_bytes(5000 * 1024_GiB), "5000.0 TiB");
}

TEST(Units, ParsesItsOwnFormatApproximately) {
  for (Bytes n = 1; n < 1024_GiB * 1024; n = n * 3 + 1) {
    const auto back = parse_bytes(format_bytes(n));
    ASSERT_TRUE(back.has_value()) << format_bytes(n);
    EXPECT_NEAR(static_cast<double>(*back), static_cast<double>(n), 0.006 * static_cast<double>(n));
  }
}

}  // namespace
}  // namespace spillway
