#include "runs/config/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/check/config_text.h"
#include "tests/support/check/thrown.h"

namespace spillway {
namespace {

using testing::kShortestConfig;
using testing::messages;
using testing::read_valid;
using testing::thrown;
using Messages = std::vector<std::string>;

const std::string kDevices = "devices: [{memory: 1GiB}]\n";
const std::string kData = "data: {path: x}\n";

Messages problems(const std::string& text) {
  Findings findings;
  read_config(parse_yaml(text), findings);
  return messages(findings);
}

/// Problems of the shortest configuration with more lines; the first is line 4.
Messages problems_with(const std::string& lines) { return problems(kShortestConfig + lines); }

RunConfig read_with(const std::string& lines) { return read_valid(kShortestConfig + lines); }

TEST(Config, HasDefaultsForMissingKeys) {
  const auto config = read_valid(kShortestConfig);
  EXPECT_EQ(config.name, "run");
  EXPECT_EQ(config.output_dir, "runs/run");
  ASSERT_EQ(config.session.devices.size(), 1u);
  EXPECT_EQ(config.session.devices[0].kind, DeviceKind::cpu);
  EXPECT_EQ(config.session.devices[0].memory, 1_GiB);
  EXPECT_EQ(config.data.paths, Messages{"text.txt"});
  EXPECT_EQ(config.train.learning_rate, TrainConfig{}.learning_rate);
  EXPECT_EQ(config.gpt.hidden_size, GptConfig{}.hidden_size);
  EXPECT_TRUE(config.sweep.parameters.empty());
  EXPECT_EQ(problems(""),
            (Messages{"devices: is missing; list at least one, such as [{kind: cpu, memory: 1GiB}]",
                      "data.path: is missing; write a file or a folder, or a list of them"}));
}

TEST(Config, NamesTheOutputFolderAfterTheRun) {
  EXPECT_EQ(read_with("name: my run/2\n").output_dir, "runs/my_run_2");
  EXPECT_EQ(read_with("name: x\noutput_dir: /tmp/o\n").output_dir, "/tmp/o");
}

TEST(Config, ReadsDataParallelAsANumberOrAuto) {
  EXPECT_EQ(read_with("train: {data_parallel: auto}\n").train.data_parallel, kAutoDataParallel);
  EXPECT_EQ(read_with("train: {data_parallel: 3}\n").train.data_parallel, 3);
  EXPECT_EQ(problems_with("train: {data_parallel: 0}\n").size(), 1u);
}

TEST(Config, ReadsAutoscaleAsARuleOrAList) {
  const auto rules = [](const std::string& text) {
    std::vector<std::string> names;
    const auto config = read_with("train: {autoscale: " + text + "}\n");
    for (const auto& rule : config.train.autoscale) names.emplace_back(to_string(rule.rule));
    return names;
  };
  EXPECT_EQ(rules("[]"), Messages{});
  EXPECT_EQ(rules("{rule: stepped, loss: 2}"), Messages{"stepped"});
  EXPECT_EQ(rules("[{rule: throughput}, {rule: straggler}]"),
            (Messages{"throughput", "straggler"}));
}

TEST(Config, ReadsAListOfReports) {
  const std::vector<Reporter> board{Reporter::tensorboard};
  EXPECT_EQ(read_with("").report_to, std::vector<Reporter>{});
  EXPECT_EQ(read_with("report_to: []\n").report_to, std::vector<Reporter>{});
  EXPECT_EQ(read_with("report_to: tensorboard\n").report_to, board);
  EXPECT_EQ(read_with("report_to: [tensorboard]\n").report_to, board);
  EXPECT_EQ(problems_with("report_to: [wandb]\n"),
            (Messages{"line 4: report_to[0]: is 'wandb', must be tensorboard"}));
  EXPECT_TRUE(read_valid(to_yaml(read_with(""))).report_to.empty());
}

TEST(Config, ReadsUnitsOfSizes) {
  const auto config = read_valid(
      "devices: [{memory: 12MiB}, {memory: 1.5 GB}, {memory: 4096}, {kind: cpu, memory: 64k}]\n"
      "host_memory: 2TiB\n" +
      kData);
  EXPECT_EQ(config.session.devices[0].memory, 12_MiB);
  EXPECT_EQ(config.session.devices[1].memory, 1'500'000'000u);
  EXPECT_EQ(config.session.devices[2].memory, 4096u);
  EXPECT_EQ(config.session.devices[3].memory, 64_KiB);
  EXPECT_EQ(config.session.host_memory, 2048_GiB);
  EXPECT_EQ(problems_with("host_memory: 12Mib\n"),
            Messages{"line 4: host_memory: is '12Mib', must be a size, such as 12MiB"});
  for (const std::string size : {"0", "-1GiB", "much", "0.1", "1e30GiB"})
    EXPECT_EQ(problems_with("host_memory: " + size + "\n").size(), 1u) << size;
  EXPECT_EQ(problems("devices:\n  - {memory: 1GiB}\n  - {memory: a lot}\n" + kData),
            Messages{"line 3: devices[1].memory: is 'a lot', must be a size from 4.00 KiB to "
                     "16.00 TiB, such as 12MiB"});
}

TEST(Config, AcceptsGpus) {
  const auto devices =
      read_valid("devices: [{kind: cuda, memory: 8GiB}, {kind: cuda, index: 3, memory: 1GiB}]\n" +
                 kData)
          .session.devices;
  EXPECT_EQ(devices[0].kind, DeviceKind::cuda);
  EXPECT_EQ(devices[0].index, 0);
  EXPECT_EQ(devices[1].index, 3);
}

TEST(Config, ReadsRatesOfImitatedLinks) {
  const auto with_link = [](const std::string& link) {
    return "devices: [{memory: 1GiB, imitate: {link: " + link + "}}]\n" + kData;
  };
  const auto rate = [&](const std::string& link) {
    return read_valid(with_link(link)).session.devices[0].imitate.link_bytes_per_s;
  };
  EXPECT_EQ(rate("2GB/s"), 2'000'000'000u);
  EXPECT_EQ(rate("0"), 0u);
  for (const std::string link : {"2GB", "2", "fast", "-1GB/s", "1kB/s"})
    EXPECT_EQ(problems(with_link(link)),
              Messages{"line 1: devices[0].imitate.link: is '" + link +
                       "', must be a rate of at least 1.00 MiB/s, such as 2GB/s, or 0 for no "
                       "limit"});
}

TEST(Config, ReadsLinksBetweenDevices) {
  const auto with_links = [](const std::string& links) {
    return "devices: [{memory: 1GiB}, {memory: 1GiB}]\nlinks: " + links + "\n" + kData;
  };
  EXPECT_EQ(read_valid(with_links("[{between: [1, 0], rate: 2GB/s, latency: 1e-4, shared: true}]"))
                .session.links,
            (std::vector<LinkConfig>{{{1, 0}, 2'000'000'000, 1e-4, true}}));
  EXPECT_EQ(
      problems(with_links("[{rate: 0}, {between: 0, rate: 1B/s, latency: -1, share: true}]")),
      (Messages{
          "line 2: links[0].between: is missing; list the numbers of the devices, such as [0, 1]",
          "line 2: links[0].rate: is '0', must be a rate of at least 1.00 KiB/s, such as 2GB/s",
          "line 2: links[1].between: is '0', must be a list, such as [1, 2]",
          "line 2: links[1].rate: is '1B/s', must be a rate of at least 1.00 KiB/s, such as 2GB/s",
          "line 2: links[1].latency: is '-1', must be a number of at least 0 and at most 60",
          "line 2: links[1].share: unknown key; did you mean links[1].shared?"}));
}

TEST(Config, ReportsAllProblemsInOrderOfLines) {
  EXPECT_EQ(
      problems("train:\n"
               "  batch_size: many\n"
               "  lr: 3\n"
               "devices: [{kind: tpu}]\n"
               "model: 3\n"
               "data: {paths: x, eval_fraction: 1}\n"
               "scheduling:\n"
               "  double_buffer: yes\n"
               "  policy:\n"
               "seed: -1\n"),
      (Messages{
          "line 2: train.batch_size: is 'many', must be an integer from 1 to 16777216",
          "line 3: train.lr: unknown key; remove it",
          "line 4: devices[0].kind: is 'tpu', must be cpu or cuda",
          "line 4: devices[0].memory: is missing; write the most bytes that the device may hold, "
          "such as 1GiB",
          "line 5: model: is '3', must be a mapping of keys to values",
          "line 6: data.path: is missing; write a file or a folder, or a list of them",
          "line 6: data.eval_fraction: is '1', must be a number of at least 0 and below 1",
          "line 6: data.paths: unknown key; did you mean data.path?",
          "line 8: scheduling.double_buffer: is 'yes', must be true or false",
          "line 9: scheduling.policy: has no value, must be lrtf, srtf, fifo, round_robin or "
          "random",
          "line 10: seed: is '-1', must be an integer from 0 to 18446744073709551615",
      }));
}

/// Line 4 of a configuration, and its problem.
constexpr const char* kLines = R"(sede: 1 -> sede: unknown key; did you mean seed?
learning_rate: 1 -> learning_rate: unknown key; did you mean train.learning_rate?
model: {hiddensize: 1} -> model.hiddensize: unknown key; did you mean model.hidden_size?
train: {dropout: 0} -> train.dropout: unknown key; did you mean model.dropout?
sweep: {metrics: {}} -> sweep.metrics: unknown key; did you mean sweep.metric?
zzzzzzzzzzzz: 1 -> zzzzzzzzzzzz: unknown key; remove it
model: {family: mlp, hidden_act: gelu} ->
model: {family: mlp, num_attention_heads: 2} -> model.num_attention_heads: unknown key; remove it
model: {hidden_act: gelu} -> model.hidden_act: unknown key; did you mean model.hidden_size?
model: {family: lstm} -> model.family: is 'lstm', must be gpt, mlp, resnet, cnn, rnn or torch
model: {vocab_size: 256} ->
model: {vocab_size: 255} -> model.vocab_size: is 255, must be at least 256 with data.format: bytes
train: {max_steps: 1000000000000} ->
train: {max_steps: 0} -> train.max_steps: is '0', must be an integer from 1 to 1000000000000
train: {max_steps: -5} -> train.max_steps: is '-5', must be an integer from 1 to 1000000000000
train: {max_steps: 1e3} -> train.max_steps: is '1e3', must be an integer from 1 to 1000000000000
train: {max_steps: 2.5} -> train.max_steps: is '2.5', must be an integer from 1 to 1000000000000
train: {max_steps: 0x10} -> train.max_steps: is '0x10', must be an integer from 1 to 1000000000000
train: {max_steps: +5} -> train.max_steps: is '+5', must be an integer from 1 to 1000000000000
train: {max_steps: 5 s} -> train.max_steps: is '5 s', must be an integer from 1 to 1000000000000
train: {learning_rate: 3e-4} ->
train: {learning_rate: .5} ->
train: {weight_decay: -1} -> train.weight_decay: is '-1', must be a number of at least 0 and below 1000000
train: {adam_beta1: nan} -> train.adam_beta1: is 'nan', must be a number of at least 0 and below 1
train: {adam_beta1: inf} -> train.adam_beta1: is 'inf', must be a number of at least 0 and below 1
train: {adam_beta1: 1e999} -> train.adam_beta1: is '1e999', must be a number of at least 0 and below 1
train: {adam_beta1: 1} -> train.adam_beta1: is '1', must be a number of at least 0 and below 1
train: {adam_beta1: '0,9'} -> train.adam_beta1: is '0,9', must be a number of at least 0 and below 1
train: {adam_beta1: ''} -> train.adam_beta1: is empty, must be a number of at least 0 and below 1
train: {adam_beta1: [1]} -> train.adam_beta1: is a list, must be a number of at least 0 and below 1
train: {adam_beta1: ~} -> train.adam_beta1: has no value, must be a number of at least 0 and below 1
train: {adam_beta1: 0.999} ->
sweep: {parameters: {seed: {values: [1, 2]}}} ->
sweep: {parameters: {seed: {values: []}}} -> sweep.parameters.seed.values: must be a list of at least one value
sweep: {parameters: {seed: {values: 3}}} -> sweep.parameters.seed.values: must be a list of at least one value
sweep: {parameters: {seed: {}}} -> sweep.parameters.seed.values: is missing; list them, such as {values: [1e-3, 1e-2]}
sweep: {parameters: {seed: {values: [1], mean: 3}}} -> sweep.parameters.seed.mean: unknown key; did you mean sweep.parameters.seed.min?
sweep: {parameters: [a]} -> sweep.parameters: must be a mapping of keys to their values, such as {train.learning_rate: {values: [1e-3, 1e-2]}}
sweep: {parameters: } ->
)";

TEST(Config, ChecksALine) {
  std::istringstream lines(kLines);
  for (std::string line; std::getline(lines, line);) {
    const auto arrow = line.find(" ->");
    const std::string problem = line.substr(std::min(line.size(), arrow + 4));
    EXPECT_EQ(problems_with(line.substr(0, arrow) + "\n"),
              problem.empty() ? Messages{} : Messages{"line 4: " + problem});
  }
}

TEST(Config, NamesTheNewKeyForAnOldOne) {
  EXPECT_EQ(problems_with("home_path: /tmp\ntrain:\n  lanes: 2\n  max_lanes: 3\n"),
            (Messages{"line 4: home_path: was renamed to offload_path",
                      "line 6: train.lanes: was renamed to train.data_parallel",
                      "line 7: train.max_lanes: was renamed to train.max_data_parallel"}));
  EXPECT_EQ(problems("devices: [{memory: 1GiB}, {memory: 1GiB, link: 2GB/s, slowdown: 2,\n"
                     "  fault: {kind: fail}}]\n" +
                     kData),
            (Messages{"line 1: devices[1].link: was renamed to devices[1].imitate.link",
                      "line 1: devices[1].slowdown: was renamed to devices[1].imitate.slowdown",
                      "line 2: devices[1].fault: was renamed to devices[1].imitate.fault"}));
}

TEST(Config, TakesTheKeysOfTheFormatOfData) {
  const auto data = [](const std::string& keys) {
    return "devices: [{memory: 1GiB}]\nmodel: {vocab_size: 255}\ndata: {path: x, " + keys + "}";
  };
  EXPECT_EQ(read_valid(data("format: tokens")).data.dtype, TokenType::uint16);
  EXPECT_EQ(read_valid(data("format: tokens, dtype: uint32")).data.dtype, TokenType::uint32);
  EXPECT_EQ(read_valid(data("format: digits")).data.augment, Augmentation::none);
  EXPECT_EQ(read_valid(data("format: digits, augment: shift")).data.augment, Augmentation::shift);
  EXPECT_EQ(problems(data("format: digits, augment: 1")),
            Messages{"line 3: data.augment: is '1', must be none or shift"});
  EXPECT_EQ(problems(data("format: digits, dtype: uint16")).size(), 1u);
  EXPECT_EQ(problems(data("format: tokens, augment: shift")).size(), 1u);
}

TEST(Config, ReadsTheLayersOfModels) {
  EXPECT_EQ(read_with("model: {num_hidden_layers: 5}\n").num_layers(), 12);
  EXPECT_EQ(read_with("model: {family: mlp, num_hidden_layers: 5}\n").num_layers(), 6);
  EXPECT_EQ(read_with("model: {family: resnet, depths: [2, 3, 1]}\n").num_layers(), 2 + 2 * 6 + 2);
  EXPECT_EQ(read_with("model: {family: cnn, preset: alexnet}\n").num_layers(), 5 + 3 + 3);
  EXPECT_EQ(read_with("model: {family: rnn, preset: rnntc, chunk_steps: 9}\n").num_layers(),
            1 + 4 * 5 + 1);
}

TEST(Config, ReadsSeedsOf64Bits) {
  EXPECT_EQ(read_with("seed: 18446744073709551615\n").train.seed, ~std::uint64_t{0});
  for (const char* seed : {"-1", "18446744073709551616", "1.0"})
    EXPECT_EQ(problems_with(std::string("seed: ") + seed + "\n").size(), 1u) << seed;
}

TEST(Config, KeepsTheDefaultForAWrongValue) {
  Findings findings;
  const auto config = read_config(
      parse_yaml(kShortestConfig + "train: {data_parallel: x, virtual_nodes: 4}\n"), findings);
  EXPECT_EQ(config.train.data_parallel, 1);
  EXPECT_EQ(config.train.virtual_nodes, 4);
}

TEST(Config, ReadsOneTextOrAList) {
  EXPECT_EQ(read_valid(kDevices + "data: {path: [a, b]}\n").data.paths, (Messages{"a", "b"}));
  for (const std::string path : {"[]", "{a: b}", "''", "[a, '']", "[[a]]", "~"}) {
    const Messages found = problems(kDevices + "data: {path: " + path + "}\n");
    ASSERT_EQ(found.size(), 1u) << path;
    EXPECT_TRUE(found[0].starts_with("line 2: data.path: ") &&
                found[0].ends_with(", must be a string or a list of strings"))
        << found[0];
  }
  EXPECT_EQ(read_with("").gpt.freeze, Messages{});
  EXPECT_EQ(read_with("model: {freeze: []}\n").gpt.freeze, Messages{});
  EXPECT_EQ(read_with("model: {freeze: wte.*}\n").gpt.freeze, Messages{"wte.*"});
  EXPECT_EQ(problems_with("model: {freeze: ['']}\n").size(), 1u);
}

TEST(Config, ReadsDevicesAsAList) {
  const std::string problem = ", must be a list of at least one mapping, such as [{memory: 1GiB}]";
  EXPECT_EQ(problems("devices: []\n" + kData),
            Messages{"line 1: devices: is an empty list" + problem});
  EXPECT_EQ(problems("devices: {memory: 1GiB}\n" + kData),
            Messages{"line 1: devices: is a mapping" + problem});
  EXPECT_EQ(problems("devices: [cpu]\n" + kData).at(0),
            "line 1: devices[0]: is 'cpu', must be a mapping of keys to values");
}

TEST(Config, ReadsEveryChoiceByItsName) {
  for (const char* name : kNames<PolicyKind>)
    EXPECT_STREQ(
        to_string(read_with("scheduling: {policy: " + std::string(name) + "}\n").session.policy),
        name);
  EXPECT_EQ(value_named<PolicyKind>("lifo"), std::nullopt);
}

TEST(Findings, CountTheSameProblemOnce) {
  Findings findings;
  EXPECT_TRUE(findings.empty());
  EXPECT_NO_THROW(findings.throw_if_any());
  findings.add("a.b", 7, "is bad");
  findings.add("a.b", 9, "is bad");
  findings.add("a.b", 3, "is worse");
  findings.add("c", 0, "is bad");
  EXPECT_STREQ(thrown<ConfigErrors>([&] { findings.throw_if_any(); }).what(),
               "c: is bad\nline 3: a.b: is worse\nline 7: a.b: is bad");
}

TEST(Findings, ConcernASectionAndItsFields) {
  Findings findings;
  findings.add("train.priority", 1, "is bad");
  findings.add("devices[1].memory", 1, "is bad");
  for (const char* section : {"train", "train.priority", "devices", "devices[1]"})
    EXPECT_TRUE(findings.concern(section)) << section;
  for (const char* section : {"tra", "model", "train.priority.x", "devices[0]"})
    EXPECT_FALSE(findings.concern(section)) << section;
}

TEST(Config, HasKeysForTheFieldsOfTheLibrary) {
  EXPECT_EQ(key_of_field("train.seed"), "seed");
  EXPECT_EQ(key_of_field("train.order"), "scheduling.order");
  EXPECT_EQ(key_of_field("model.dropout"), "model.dropout");
}

TEST(Reference, HasARowForEveryKey) {
  const std::string tables = reference_tables();
  EXPECT_NE(tables.find("| `batch_size` | integer from 1 to 16777216 | `32` | yes | "),
            std::string::npos)
      << tables;
  EXPECT_NE(tables.find("| `memory` | size from 4.00 KiB to 16.00 TiB, such as 12MiB | required |"),
            std::string::npos);
  for (const std::string& key : config_keys()) {
    if (key.starts_with("devices") || key == "train.autoscale" || key == "sweep.parameters" ||
        key == "sweep.trials")
      continue;
    const std::string last = key.substr(key.rfind('.') + 1);
    EXPECT_TRUE(tables.find("`" + last + "` |") != std::string::npos ||
                tables.find("." + last + "` |") != std::string::npos)
        << key;
  }
}

}  // namespace
}  // namespace spillway
