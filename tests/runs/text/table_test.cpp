#include "runs/text/table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "runs/text/terminal_text.h"

namespace spillway {
namespace {

using Lines = std::vector<std::string>;

Table small_table() {
  Table table(std::vector<Table::Column>{
      {"trial"}, {"learning_rate", 11}, {"num_hidden_layers", 12}, {"step", 0}, {"left", 20}});
  table.add({"t0", "0.003726", "3", "12/120", "2:05 min"});
  table.add({"t1", "0.1", "12", "2/120", "9 s"});
  return table;
}

TEST(Table, IsAsWideAsItsCells) {
  EXPECT_EQ(small_table().lines(kAnyWidth),
            (Lines{"  trial  learning_rate  num_hidden_layers    step      left",
                   "  t0          0.003726                  3  12/120  2:05 min",
                   "  t1               0.1                 12   2/120       9 s"}));
}

TEST(Table, CutsTitlesFirst) {
  EXPECT_EQ(small_table().lines(48), (Lines{"  trial  learning_r~  num_hid~    step      left",
                                            "  t0        0.003726         3  12/120  2:05 min",
                                            "  t1             0.1        12   2/120       9 s"}));
}

TEST(Table, OmitsColumnsByRank) {
  EXPECT_EQ(small_table().lines(34)[0], "  trial  learnin~  num_~    step");
  EXPECT_EQ(small_table().lines(25)[0], "  trial  learnin~    step");
  EXPECT_EQ(small_table().lines(24)[0], "  trial    step");
  EXPECT_EQ(small_table().lines(24)[1], "  t0     12/120");
}

TEST(Table, WritesNoWiderLine) {
  for (std::size_t width = 0; width < 70; ++width) {
    for (const std::string& line : small_table().lines(width)) EXPECT_LE(columns_of(line), width);
  }
}

TEST(Table, CutsLongNamesBeforeItOmitsColumns) {
  Table table(Lines{"trial", "fits", "budget"});
  table.add({"learning_rate=0.0037255056,hidden_size=256", "yes", "1.00 GiB"});
  EXPECT_EQ(table.lines(42)[1], "  learning_rate=0.0037255~   yes  1.00 GiB");
  EXPECT_EQ(table.lines(32)[1], "  learning_rate=0.0037255~   yes");
}

TEST(Table, LimitsNoWidthOnAPlainStream) {
  std::ostringstream wide, narrow;
  EXPECT_EQ(table_width(wide), kAnyWidth);
  set_table_width(narrow, 24);
  small_table().print(wide);
  small_table().print(narrow);
  EXPECT_TRUE(
      wide.str().starts_with("  trial  learning_rate  num_hidden_layers    step      left\n"));
  EXPECT_TRUE(narrow.str().starts_with("  trial    step\n"));
}

}  // namespace
}  // namespace spillway
