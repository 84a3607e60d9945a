#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "runs/config/yaml_node.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway {
namespace {

using testing::TemporaryFolder;
using testing::thrown;
using Kind = YamlNode::Kind;

ConfigError error_of(const std::string& text) {
  return thrown<ConfigError>([&] { parse_yaml(text); });
}

void expect_same(const YamlNode& a, const YamlNode& b) {
  EXPECT_EQ(a.kind, b.kind) << a.key;
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.text, b.text) << a.key;
  ASSERT_EQ(a.children.size(), b.children.size()) << a.key;
  for (std::size_t i = 0; i < a.children.size(); ++i) expect_same(a.children[i], b.children[i]);
}

TEST(Yaml, KeepsKindTextAndLineOfValues) {
  const auto tree = parse_yaml(
      "# comment\n"
      "name: my run  # trailing\n"
      "list:\n"
      "  - 1e-3\n"
      "  - 'two # words'\n"
      "map: {a: 1,\n"
      "      b: true}\n"
      "nothing:\n");
  EXPECT_EQ(tree.kind, Kind::map);
  EXPECT_EQ(tree.find("name")->text, "my run");
  EXPECT_EQ(tree.find("name")->line, 2);
  const auto& list = *tree.find("list");
  ASSERT_EQ(list.kind, Kind::list);
  EXPECT_EQ(list.line, 3);
  EXPECT_EQ(list.children[0].text, "1e-3");
  EXPECT_EQ(list.children[1].text, "two # words");
  EXPECT_EQ(list.children[1].line, 5);
  EXPECT_EQ(tree.find("map")->find("b")->text, "true");
  EXPECT_EQ(tree.find("map")->find("b")->line, 7);
  EXPECT_EQ(tree.find("nothing")->kind, Kind::null);
  EXPECT_EQ(tree.find("nothing")->line, 8);
  EXPECT_EQ(tree.find("absent"), nullptr);
  EXPECT_EQ(list.find("name"), nullptr);
}

TEST(Yaml, ReadsAnEmptyDocumentAsNoValue) {
  EXPECT_EQ(parse_yaml("").kind, Kind::null);
  EXPECT_EQ(parse_yaml("# only a comment\n").kind, Kind::null);
}

TEST(Yaml, NamesTheLineOfASyntaxError) {
  const auto unclosed = error_of("a: 1\nb: [1, 2\n");
  EXPECT_EQ(unclosed.line, 3);
  EXPECT_TRUE(unclosed.problem.starts_with("not valid YAML: ")) << unclosed.problem;
  EXPECT_EQ(error_of("a: 1\n\tb: 2\n").line, 2);
  EXPECT_EQ(error_of("a: 1\nb 2\nc: 3\n").field, "");
  EXPECT_EQ(error_of("a: *nowhere\n").line, 1);
}

TEST(Yaml, RejectsDuplicateKeys) {
  const auto error = error_of("train:\n  priority: 1\n  seed: 2\n  priority: 3\n");
  EXPECT_EQ(error.field, "train.priority");
  EXPECT_EQ(error.line, 4);
  EXPECT_STREQ(error.what(), "line 4: train.priority: is given twice; remove one of them");
}

TEST(Yaml, RejectsKeysThatAreNotText) {
  EXPECT_EQ(error_of("a: 1\n[b, c]: 2\n").problem, "a key must be plain text");
  EXPECT_EQ(error_of("a: 1\n[b, c]: 2\n").line, 2);
}

TEST(Yaml, RejectsSeveralDocuments) {
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n").problem, "the file has more than one YAML document");
  EXPECT_EQ(error_of("\n, a").line, 2);
  EXPECT_EQ(error_of(",").problem, "not valid YAML: a document cannot begin with this");
}

TEST(Yaml, ResolvesAliases) {
  const auto tree = parse_yaml("a: &x {k: 1}\nb: *x\n");
  EXPECT_EQ(tree.find("b")->find("k")->text, "1");
}

TEST(Yaml, RejectsEndlessAliases) {
  EXPECT_EQ(error_of("a: &x [*x]\n").problem, "an alias refers to the value that contains it");
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 25; ++i) {
    const std::string inner = "*a" + std::to_string(i - 1), name = "a" + std::to_string(i);
    bomb += name + ": &" + name + " [" + inner + " , " + inner + " ]\n";
  }
  EXPECT_EQ(error_of(bomb).problem, "the configuration has more than 100000 values, the limit");
  EXPECT_THROW(parse_yaml(std::string(100'000, '[')), ConfigError);
}

TEST(Yaml, LimitsNesting) {
  const auto nested = [](int levels) {
    return "a: " + std::string(static_cast<std::size_t>(levels), '[') +
           std::string(static_cast<std::size_t>(levels), ']');
  };
  EXPECT_EQ(parse_yaml(nested(32)).find("a")->kind, Kind::list);
  EXPECT_EQ(error_of(nested(33)).problem, "is nested deeper than 32 levels");
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Yaml, LimitsTheNumberOfValues) {
  EXPECT_EQ(parse_yaml(repeated("- 1\n", 99'999)).children.size(), 99'999u);
  EXPECT_EQ(error_of(repeated("- 1\n", 100'000)).line, 100'000);
  std::string keys;
  for (int i = 0; i < 99'999; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  EXPECT_EQ(parse_yaml(keys).children.size(), 99'999u);
  EXPECT_EQ(error_of(keys + "l: 1\n").problem,
            "the configuration has more than 100000 values, the limit");
}

/// Before a tree, or even its tokens, are built.
TEST(Yaml, RefusesALargeFile) {
  constexpr int kMany = 4'000'000;
  for (const std::string start : {"[", "a: [", "- [", "{"}) {
    EXPECT_EQ(error_of(start + repeated("1,", kMany)).problem,
              "the configuration has more than 100000 commas and opening brackets, the limit");
  }
  EXPECT_EQ(error_of(std::string(kMany, '[')).line, 0);
  EXPECT_EQ(error_of(repeated("k: 1\n", kMany)).problem,
            "the configuration is larger than 8.00 MiB, the limit");
}

TEST(Yaml, RejectsANulInText) {
  const auto quoted = error_of("a:\n  b: [x, \"y\\0z\"]\n");
  EXPECT_EQ(quoted.field, "a.b[1]");
  EXPECT_EQ(quoted.line, 2);
  EXPECT_EQ(quoted.problem, "has a NUL character; remove it");
  EXPECT_THROW(parse_yaml(std::string("a: x\0y\n", 8)), ConfigError);
  EXPECT_THROW(parse_yaml("\"a\\0\": x\n"), ConfigError);
}

TEST(Yaml, RoundTrips) {
  const auto tree = parse_yaml(
      "plain: text\n"
      "empty: ''\n"
      "null as text: 'null'\n"
      "tilde: '~'\n"
      "none:\n"
      "number: 1e-3\n"
      "dash: '- x'\n"
      "colon: 'a: b #c'\n"
      "spaces: '  x  '\n"
      "lines: \"a\\nb\\tc\"\n"
      "quotes: 'it''s \"so\"'\n"
      "unicode: \xC3\xA9\n"
      "'train.learning_rate': {values: [1, 'b,c', [], {x: {}}]}\n"
      "no items: []\n"
      "no keys: {}\n"
      "nested: {a: {b: {c: [d]}}}\n");
  ASSERT_EQ(tree.children.size(), 16u);
  expect_same(parse_yaml(to_yaml(tree)), tree);
}

TEST(Yaml, WritesAKeyPerLineAndAListOnOneLine) {
  EXPECT_EQ(to_yaml(parse_yaml("a: {b: 1, c: [x, {k: v}]}\nd: 'null'\n")),
            "a:\n  b: 1\n  c: [x, {k: v}]\nd: \"null\"\n");
}

TEST(YamlFile, IsReadWhole) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_yaml_file(folder.write("c.yaml", "a: 1\r\nb: 2\r\n")).find("b")->text, "2");
}

TEST(YamlFile, ReportsAnUnreadableFileAsIoError) {
  const TemporaryFolder folder;
  const auto missing = thrown<IoError>([&] { read_yaml_file(folder / "c.yaml"); });
  EXPECT_EQ(missing.code, ENOENT);
  EXPECT_EQ(missing.path, folder / "c.yaml");
  EXPECT_EQ(thrown<IoError>([&] { read_yaml_file(folder.path()); }).code, EISDIR);
}

}  // namespace
}  // namespace spillway
