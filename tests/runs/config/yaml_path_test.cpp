#include "runs/config/yaml_path.h"

#include <gtest/gtest.h>

#include <string>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"

namespace spillway {
namespace {

using testing::thrown;
using Kind = YamlNode::Kind;

YamlNode sample() {
  return parse_yaml(
      "devices: [{memory: 1GiB}, {memory: 2GiB}]\n"
      "train: {priority: 2}\n"
      "sweep:\n"
      "  parameters:\n"
      "    train.priority: {values: [1, 2]}\n");
}

std::string text_at(const YamlNode& tree, const std::string& path) {
  const auto* node = find_at(tree, path);
  return node == nullptr ? "(nothing)" : node->text;
}

YamlNode after(const std::string& text) {
  auto tree = sample();
  apply_override(tree, text);
  return tree;
}

TEST(LiesIn, EndsAtADotOrABracket) {
  EXPECT_TRUE(lies_in("train", "train"));
  EXPECT_TRUE(lies_in("train.priority", "train"));
  EXPECT_TRUE(lies_in("devices[0].memory", "devices"));
  EXPECT_FALSE(lies_in("trainer", "train"));
  EXPECT_FALSE(lies_in("train", "train.priority"));
}

TEST(FindAt, FindsKeysAndItems) {
  const auto tree = sample();
  EXPECT_EQ(text_at(tree, "train.priority"), "2");
  EXPECT_EQ(text_at(tree, "devices[1].memory"), "2GiB");
  EXPECT_EQ(text_at(tree, "sweep.parameters.train.priority.values[1]"), "2");
  EXPECT_EQ(find_at(tree, ""), &tree);
}

TEST(FindAt, ReturnsNullForAMissingPath) {
  const auto tree = sample();
  for (const char* path :
       {"seed", "train.seed", "train.priority.x", "devices[2]", "devices[-1]", "devices[x]",
        "devices[", "devices[]", "devices[0]memory", "devices.memory", "train[0]", "train.",
        "train..lanes", ".train", "[0]", "."}) {
    EXPECT_EQ(find_at(tree, path), nullptr) << path;
  }
}

TEST(Override, ReplacesAValue) {
  EXPECT_EQ(text_at(after("train.priority=4"), "train.priority"), "4");
  EXPECT_EQ(text_at(after("devices[1].memory=12MiB"), "devices[1].memory"), "12MiB");
  EXPECT_EQ(text_at(after("devices[1].memory=12MiB"), "devices[0].memory"), "1GiB");
}

TEST(Override, CreatesMissingSections) {
  EXPECT_EQ(text_at(after("model.hidden_size=64"), "model.hidden_size"), "64");
  EXPECT_EQ(text_at(after("a.b.c=1"), "a.b.c"), "1");
  YamlNode empty;
  apply_override(empty, "train.seed=3");
  EXPECT_EQ(text_at(empty, "train.seed"), "3");
}

TEST(Override, ReplacesAKeyWithDots) {
  const auto tree = after("sweep.parameters.train.priority.values=[3]");
  EXPECT_EQ(text_at(tree, "sweep.parameters.train.priority.values[0]"), "3");
  EXPECT_EQ(find_at(tree, "sweep.parameters")->children.size(), 1u);
}

TEST(Override, KeepsPlainText) {
  EXPECT_EQ(text_at(after("name=a: b # c"), "name"), "a: b # c");
  EXPECT_EQ(text_at(after("name=a=b"), "name"), "a=b");
  EXPECT_EQ(text_at(after("name=null"), "name"), "null");
  EXPECT_EQ(find_at(after("name="), "name")->kind, Kind::scalar);
}

TEST(Override, ReadsYamlAfterBracketsAndQuotes) {
  const auto tree = after("data.path=[a.txt, 'b, c.txt']");
  EXPECT_EQ(find_at(tree, "data.path")->kind, Kind::list);
  EXPECT_EQ(text_at(tree, "data.path[1]"), "b, c.txt");
  EXPECT_EQ(text_at(after("model={hidden_size: 8}"), "model.hidden_size"), "8");
  EXPECT_EQ(text_at(after("name=\"[x]\""), "name"), "[x]");
}

TEST(Override, HasNoLine) {
  const auto tree = after("devices=[{memory: 1GiB}]");
  EXPECT_EQ(find_at(tree, "devices")->line, 0);
  EXPECT_EQ(find_at(tree, "devices[0].memory")->line, 0);
}

TEST(Override, NamesAMissingPath) {
  for (const std::string path : {"devices[2].memory", "train.priority.x", "train[0]", "train.",
                                 "devices[0]memory", ".train.priority"}) {
    const auto error = thrown<ConfigError>([&] { after(path + "=1"); });
    EXPECT_EQ(error.field, path);
    EXPECT_EQ(error.problem, "is not a key of the configuration");
  }
}

TEST(Override, NeedsAKeyAndAValue) {
  for (const std::string text : {"train.priority", "=4", ""}) {
    const auto error = thrown<ConfigError>([&] { after(text); });
    EXPECT_STREQ(error.what(),
                 ("'" + text + "' is not an override; write it as key=value").c_str());
  }
}

TEST(Override, NamesTheKeyOfBadYaml) {
  const auto error = thrown<ConfigError>([] { after("data.path=[a, b"); });
  EXPECT_EQ(error.field, "data.path");
  EXPECT_NE(error.problem.find("not valid YAML"), std::string::npos);
}

TEST(RemoveAt, RemovesAKey) {
  auto tree = sample();
  remove_at(tree, "train.priority");
  EXPECT_EQ(find_at(tree, "train.priority"), nullptr);
  EXPECT_EQ(text_at(tree, "sweep.parameters.train.priority.values[1]"), "2");
  remove_at(tree, "devices");
  EXPECT_EQ(tree.children.size(), 2u);
  for (const char* path : {"", "nowhere", "train.priority", "devices[0]", ".train"}) {
    remove_at(tree, path);
  }
  EXPECT_EQ(tree.children.size(), 2u);
}

}  // namespace
}  // namespace spillway
