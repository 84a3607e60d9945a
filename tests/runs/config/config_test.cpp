#include "runs/config/config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/engine/policy.h"
#include "tests/support/check/config_text.h"
#include "tests/support/check/thrown.h"

namespace spillway {
namespace {

using testing::kShortestConfig;
using testing::messages;
using testing::thrown;
using Messages = std::vector<std::string>;

/// What is wrong with a document.
Messages problems(const std::string& text) {
  Findings findings;
  read_config(parse_yaml(text), findings);
  return messages(findings);
}

/// What is wrong with a document that is right but for its last lines.
Messages problems_with(const std::string& lines) { return problems(kShortestConfig + lines); }

RunConfig read(const std::string& text) {
  Findings findings;
  auto config = read_config(parse_yaml(text), findings);
  EXPECT_EQ(messages(findings), Messages{});
  return config;
}

TEST(Config, WhatIsLeftOutHasItsDefault) {
  const auto config = read(kShortestConfig);
  EXPECT_EQ(config.name, "run");
  EXPECT_EQ(config.output_dir, "runs/run");
  ASSERT_EQ(config.session.devices.size(), 1u);
  EXPECT_EQ(config.session.devices[0].kind, "cpu");
  EXPECT_EQ(config.session.devices[0].memory, 1_GiB);
  EXPECT_EQ(config.data.paths, Messages{"text.txt"});
  EXPECT_EQ(config.train.learning_rate, TrainConfig{}.learning_rate);
  EXPECT_EQ(config.gpt.hidden_size, GptConfig{}.hidden_size);
  EXPECT_TRUE(config.sweep.parameters.empty());
}

TEST(Config, OutputFolderFollowsTheName) {
  EXPECT_EQ(read(kShortestConfig + "name: my run/2\n").output_dir, "runs/my_run_2");
  EXPECT_EQ(read(kShortestConfig + "name: x\noutput_dir: /tmp/o\n").output_dir, "/tmp/o");
}

TEST(Config, LanesAreANumberOrAsManyAsPay) {
  EXPECT_EQ(read(kShortestConfig + "train: {lanes: auto}\n").train.lanes, kAutoLanes);
  EXPECT_EQ(read(kShortestConfig + "train: {lanes: 3}\n").train.lanes, 3);
}

TEST(Config, RulesAreOneOrAList) {
  const auto rules = [](const std::string& text) {
    std::vector<std::string> names;
    const auto config = read(kShortestConfig + "train: {autoscale: " + text + "}\n");
    for (const auto& rule : config.train.autoscale) names.push_back(rule.rule);
    return names;
  };
  EXPECT_EQ(rules("[]"), Messages{});
  EXPECT_EQ(rules("{rule: stepped, loss: 2}"), Messages{"stepped"});
  EXPECT_EQ(rules("[{rule: throughput}, {rule: straggler}]"),
            (Messages{"throughput", "straggler"}));
}

TEST(Config, SizesHaveUnits) {
  const auto config = read(
      "devices: [{memory: 12MiB}, {memory: 1.5 GB}, {memory: 4096}, {kind: cpu, memory: 64k}]\n"
      "host_memory: 2TiB\n"
      "data: {path: x}\n");
  EXPECT_EQ(config.session.devices[0].memory, 12_MiB);
  EXPECT_EQ(config.session.devices[1].memory, 1'500'000'000u);
  EXPECT_EQ(config.session.devices[2].memory, 4096u);
  EXPECT_EQ(config.session.devices[3].memory, 64_KiB);
  EXPECT_EQ(config.session.host_memory, 2048_GiB);
}

TEST(Config, ABadSizeShowsGoodOnes) {
  const std::string remedy = "; write a size such as 12MiB, 1.5GB or 4096";
  EXPECT_EQ(problems_with("host_memory: 12Mib\n"),
            Messages{"line 4: host_memory: '12Mib' is no size" + remedy});
  for (const std::string size : {"0", "-1GiB", "much", "0.1", "1e30GiB"})
    EXPECT_EQ(problems_with("host_memory: " + size + "\n").size(), 1u) << size;
  EXPECT_EQ(problems("devices:\n  - {memory: 1GiB}\n  - {memory: a lot}\ndata: {path: x}\n"),
            Messages{"line 3: devices[1].memory: 'a lot' is no size" + remedy});
}

TEST(Config, DevicesMayBeGpus) {
  const auto devices =
      read(
          "devices: [{kind: cuda, memory: 8GiB}, {kind: cuda, index: 3, memory: 1GiB}]\n"
          "data: {path: x}\n")
          .session.devices;
  EXPECT_EQ(devices[0].kind, "cuda");
  EXPECT_EQ(devices[0].index, 0);
  EXPECT_EQ(devices[1].index, 3);
}

TEST(Config, LinksHaveRates) {
  const auto devices =
      read(
          "devices: [{memory: 1GiB, link: 2GB/s}, {memory: 1GiB, link: 0}, {memory: 1GiB}]\n"
          "data: {path: x}\n")
          .session.devices;
  EXPECT_EQ(devices[0].link_bytes_per_s, 2'000'000'000u);
  EXPECT_EQ(devices[1].link_bytes_per_s, 0u);
  EXPECT_EQ(devices[2].link_bytes_per_s, 0u);
  for (const std::string link : {"2GB", "2", "fast", "-1GB/s"})
    EXPECT_EQ(
        problems("devices: [{memory: 1GiB, link: " + link + "}]\ndata: {path: x}\n"),
        Messages{"line 1: devices[0].link: '" + link +
                 "' is no rate; write bytes per second such as 2GB/s or 500MiB/s, or 0 for none"});
}

TEST(Config, EverythingWrongIsSaidInOneGoInOrderOfLines) {
  EXPECT_EQ(
      problems("train:\n"
               "  batch_size: many\n"
               "  lr: 3\n"
               "  lanes: 0\n"
               "devices: [{kind: tpu}]\n"
               "model: 3\n"
               "data: {paths: x, eval_fraction: 1}\n"
               "scheduling:\n"
               "  double_buffer: yes\n"
               "  policy:\n"),
      (Messages{
          "line 2: train.batch_size: 'many' is no whole number; write a whole number from 1 "
          "to 16777216",
          "line 3: train.lr: unknown key; remove it",
          "line 4: train.lanes: '0' is out of range; write a whole number from 1 to 65536, or auto",
          "line 5: devices[0].kind: 'tpu' is not known; write one of cpu, cuda",
          "line 5: devices[0].memory: is missing; write the most bytes it may hold, such as "
          "1GiB",
          "line 6: model: '3' stands where a group of keys belongs",
          "line 7: data.path: is missing; write a file or a folder, or a list of them",
          "line 7: data.eval_fraction: '1' is out of range; write a number of at least 0, "
          "below 1",
          "line 7: data.paths: unknown key; did you mean data.path?",
          "line 9: scheduling.double_buffer: 'yes' is neither true nor false",
          "line 10: scheduling.policy: no value stands where one value belongs; write one of "
          "lrtf, srtf, fifo, round_robin, random",
      }));
}

TEST(Config, AnEmptyDocumentLacksWhatMustBeThere) {
  EXPECT_EQ(problems(""),
            (Messages{"devices: is missing; list at least one, such as [{kind: cpu, memory: 1GiB}]",
                      "data.path: is missing; write a file or a folder, or a list of them"}));
}

TEST(Config, AnUnknownKeySuggestsTheNearest) {
  const auto suggestion = [](const std::string& line) { return problems_with(line).at(0); };
  EXPECT_EQ(suggestion("sede: 1\n"), "line 4: sede: unknown key; did you mean seed?");
  EXPECT_EQ(suggestion("learning_rate: 1\n"),
            "line 4: learning_rate: unknown key; did you mean train.learning_rate?");
  EXPECT_EQ(suggestion("model: {hiddensize: 1}\n"),
            "line 4: model.hiddensize: unknown key; did you mean model.hidden_size?");
  EXPECT_EQ(suggestion("train:\n  dropout: 0\n"),
            "line 5: train.dropout: unknown key; did you mean model.dropout?");
  EXPECT_EQ(suggestion("sweep: {metrics: {}}\n"),
            "line 4: sweep.metrics: unknown key; did you mean sweep.metric?");
  EXPECT_EQ(suggestion("zzzzzzzzzzzz: 1\n"), "line 4: zzzzzzzzzzzz: unknown key; remove it");
}

TEST(Config, AFamilyHasKeysOfItsOwn) {
  EXPECT_EQ(problems_with("model: {family: mlp, hidden_act: gelu}\n"), Messages{});
  EXPECT_EQ(problems_with("model: {family: mlp, num_attention_heads: 2}\n"),
            Messages{"line 4: model.num_attention_heads: unknown key; remove it"});
  EXPECT_EQ(problems_with("model: {hidden_act: gelu}\n").size(), 1u);
  EXPECT_EQ(problems_with("model: {family: rnn}\n"),
            Messages{"line 4: model.family: 'rnn' is not known; write one of gpt, mlp, resnet"});
}

TEST(Config, OnlyTokensHaveAType) {
  const std::string devices = "devices: [{memory: 1GiB}]\n";
  EXPECT_EQ(read(devices + "data: {path: x, format: tokens}\n").data.dtype, "uint16");
  EXPECT_EQ(read(devices + "data: {path: x, format: tokens, dtype: uint32}\n").data.dtype,
            "uint32");
  EXPECT_EQ(problems(devices + "data: {path: x, format: tokens, dtype: int8}\n"),
            Messages{"line 2: data.dtype: 'int8' is not known; write one of uint16, uint32"});
  EXPECT_EQ(problems(devices + "data: {path: x, dtype: uint16}\n").size(), 1u);
}

TEST(Config, OnlyDigitsAreAugmented) {
  const std::string devices = "devices: [{memory: 1GiB}]\n";
  EXPECT_EQ(read(devices + "data: {path: x, format: digits}\n").data.augment, "none");
  EXPECT_EQ(read(devices + "data: {path: x, format: digits, augment: shift}\n").data.augment,
            "shift");
  EXPECT_EQ(problems(devices + "data: {path: x, format: digits, augment: 1}\n"),
            Messages{"line 2: data.augment: '1' is not known; write one of none, shift"});
  EXPECT_EQ(problems(devices + "data: {path: x, augment: shift}\n").size(), 1u);
}

TEST(Config, BytesNeedAVocabularyOf256) {
  const std::string devices = "devices: [{memory: 1GiB}]\nmodel: {vocab_size: 255}\n";
  EXPECT_EQ(problems(devices + "data: {path: x, format: tokens}\n"), Messages{});
  EXPECT_EQ(problems(devices + "data: {path: x}\n"),
            Messages{"line 2: model.vocab_size: '255' is out of range; write a whole number from "
                     "256 to 16777216"});
}

TEST(Config, ModelsHaveLayers) {
  EXPECT_EQ(read(kShortestConfig + "model: {num_hidden_layers: 5}\n").num_layers(), 12);
  EXPECT_EQ(read(kShortestConfig + "model: {family: mlp, num_hidden_layers: 5}\n").num_layers(), 6);
  EXPECT_EQ(read(kShortestConfig + "model: {family: resnet, depths: [2, 3, 1]}\n").num_layers(),
            2 + 2 * 6 + 2);
}

TEST(Config, WholeNumbersAreWholeAndInRange) {
  const auto problem = [](const std::string& value) {
    return problems_with("train: {max_steps: " + value + "}\n");
  };
  const std::string place = "line 4: train.max_steps: '";
  const std::string remedy = "; write a whole number from 1 to 1000000000000";
  EXPECT_EQ(problem("1000000000000"), Messages{});
  for (const std::string value : {"0", "-5", "1000000000001", "99999999999999999999"})
    EXPECT_EQ(problem(value), Messages{place + value + "' is out of range" + remedy});
  for (const std::string value : {"1e3", "2.5", "0x10", "+5", "-", "5 steps"})
    EXPECT_EQ(problem(value), Messages{place + value + "' is no whole number" + remedy});
}

TEST(Config, NumbersAreFiniteAndInRange) {
  const auto num_problems = [](const std::string& key, const std::string& value) {
    return problems_with("train: {" + key + ": " + value + "}\n").size();
  };
  for (const char* value : {"0", "3e-4", "1", ".5"})
    EXPECT_EQ(num_problems("learning_rate", value), 0u) << value;
  for (const char* value : {"-1", "nan", "inf", "1e999", "1,5", "fast", "''", "[1]", "~"})
    EXPECT_EQ(num_problems("learning_rate", value), 1u) << value;
  EXPECT_EQ(num_problems("adam_beta1", "0.999"), 0u);
  EXPECT_EQ(num_problems("adam_beta1", "1"), 1u);
}

TEST(Config, ASeedHas64Bits) {
  EXPECT_EQ(read(kShortestConfig + "seed: 18446744073709551615\n").train.seed, ~std::uint64_t{0});
  for (const char* seed : {"-1", "18446744073709551616", "1.0"})
    EXPECT_EQ(problems_with(std::string("seed: ") + seed + "\n").size(), 1u) << seed;
}

TEST(Config, AWrongValueLeavesTheDefault) {
  Findings findings;
  const auto config =
      read_config(parse_yaml(kShortestConfig + "train: {lanes: x, virtual_nodes: 4}\n"), findings);
  EXPECT_EQ(config.train.lanes, 1);
  EXPECT_EQ(config.train.virtual_nodes, 4);
}

TEST(Config, PathsAreOneTextOrAList) {
  const std::string devices = "devices: [{memory: 1GiB}]\n";
  EXPECT_EQ(read(devices + "data: {path: [a, b]}\n").data.paths, (Messages{"a", "b"}));
  for (const std::string path : {"[]", "{a: b}", "''", "[a, '']", "[[a]]", "~"})
    EXPECT_EQ(problems(devices + "data: {path: " + path + "}\n"),
              Messages{"line 2: data.path: write one text, or a list of texts"});
}

TEST(Config, NothingIsFrozenUnlessSaid) {
  const auto frozen = [](const std::string& lines) {
    return read(kShortestConfig + lines).gpt.freeze;
  };
  EXPECT_EQ(frozen(""), Messages{});
  EXPECT_EQ(frozen("model: {freeze: []}\n"), Messages{});
  EXPECT_EQ(frozen("model: {freeze: wte.*}\n"), Messages{"wte.*"});
  EXPECT_EQ(problems_with("model: {freeze: ['']}\n"),
            Messages{"line 4: model.freeze: write one text, or a list of texts"});
}

TEST(Config, DevicesAreAList) {
  const std::string data = "data: {path: x}\n";
  EXPECT_EQ(
      problems("devices: []\n" + data),
      Messages{
          "line 1: devices: an empty list stands where a list with at least one item belongs"});
  EXPECT_EQ(problems("devices: {memory: 1GiB}\n" + data).size(), 1u);
  EXPECT_EQ(problems("devices: [cpu]\n" + data).at(0),
            "line 1: devices[0]: 'cpu' stands where a group of keys belongs");
}

TEST(Config, TakesEveryPolicy) {
  for (std::string_view name : kPolicyNames) {
    const std::string policy(name);
    EXPECT_EQ(read(kShortestConfig + "scheduling: {policy: " + policy + "}\n").session.policy,
              policy);
  }
}

TEST(Config, SweptKeysHaveListsOfValues) {
  const auto problem = [](const std::string& entry) {
    return problems_with("sweep:\n  parameters:\n    train.lanes: " + entry + "\n");
  };
  const std::string values = "line 6: sweep.parameters.train.lanes.values: ";
  EXPECT_EQ(problem("{values: [1, 2]}"), Messages{});
  EXPECT_EQ(problem("{values: []}"), Messages{values + "write a list of at least one value"});
  EXPECT_EQ(problem("{values: 3}"), Messages{values + "write a list of at least one value"});
  EXPECT_EQ(problem("{}"),
            Messages{values + "is missing; list them, such as {values: [1e-3, 1e-2]}"});
  EXPECT_EQ(problem("[1, 2]").size(), 2u);
  EXPECT_EQ(problem("{values: [1], mean: 3}"),
            Messages{"line 6: sweep.parameters.train.lanes.mean: unknown key; did you mean "
                     "sweep.parameters.train.lanes.min?"});
  EXPECT_EQ(problems_with("sweep: {parameters: [a]}\n").size(), 1u);
  EXPECT_EQ(problems_with("sweep: {parameters: }\n"), Messages{});
}

TEST(Findings, TheSameProblemCountsOnce) {
  Findings findings;
  EXPECT_TRUE(findings.empty());
  EXPECT_NO_THROW(findings.throw_if_any());
  findings.add("a.b", 7, "is bad");
  findings.add("a.b", 9, "is bad");
  findings.add("a.b", 3, "is worse");
  findings.add("c", 0, "is bad");
  EXPECT_EQ(messages(findings),
            (Messages{"c: is bad", "line 3: a.b: is worse", "line 7: a.b: is bad"}));
  EXPECT_STREQ(thrown<ConfigErrors>([&] { findings.throw_if_any(); }).what(),
               "c: is bad\nline 3: a.b: is worse\nline 7: a.b: is bad");
}

TEST(Findings, ConcernASectionAndWhatLiesInIt) {
  Findings findings;
  findings.add("train.lanes", 1, "is bad");
  findings.add("devices[1].memory", 1, "is bad");
  for (const char* section : {"train", "train.lanes", "devices", "devices[1]"})
    EXPECT_TRUE(findings.concern(section)) << section;
  for (const char* section : {"tra", "model", "train.lanes.x", "devices[0]"})
    EXPECT_FALSE(findings.concern(section)) << section;
}

TEST(Config, FieldsOfTheLibraryHaveKeys) {
  EXPECT_EQ(key_of_field("train.seed"), "seed");
  EXPECT_EQ(key_of_field("train.order"), "scheduling.order");
  EXPECT_EQ(key_of_field("train.lanes"), "train.lanes");
  EXPECT_EQ(key_of_field("model.dropout"), "model.dropout");
}

}  // namespace
}  // namespace spillway
