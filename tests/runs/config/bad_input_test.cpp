#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/program.h"
#include "tests/support/check/bad_input.h"

namespace spillway::testing {
namespace {

/// What each case changes one line of.
const std::string kConfig[] = {
    "output_dir: out",                // 1
    "devices: [{memory: 1MiB}]",      // 2
    "host_memory: 1GiB",              // 3
    "model:",                         // 4
    "  num_hidden_layers: 2",         // 5
    "  hidden_size: 16",              // 6
    "  num_attention_heads: 4",       // 7
    "  vocab_size: 256",              // 8
    "  max_position_embeddings: 16",  // 9
    "data:",                          // 10
    "  path: text.txt",               // 11
    "train:",                         // 12
    "  batch_size: 4",                // 13
    "  virtual_nodes: 2",             // 14
    "  max_steps: 1",                 // 15
};

/// A line, what stands there instead, and a part of the message; '!' before it: does not fit.
constexpr const char* kCases =
    R"(15 |  learning_rat: 1 | line 15: train.learning_rat: unknown key; did you mean train.learning_rate?
15 |  dropout: 0.5 | line 15: train.dropout: unknown key; did you mean model.dropout?
13 |  batch_size: four | line 13: train.batch_size: is 'four', must be an integer from 1 to 16777216
10 |data: text.txt\nsweep: | line 10: data: is 'text.txt', must be a mapping of keys to values
11 |  path: nowhere.txt | line 11: data.path: 'nowhere.txt' cannot be read: No such file or directory
11 |  path: empty.txt | line 11: data.path: 'empty.txt' is empty; name files that have bytes
11 |  path: hollow | line 11: data.path: 'hollow' is a folder without a file that has bytes
11 |  path: text.txt\n  format: digits | line 12: data.format: is digits, which model.family gpt does not read; write
11 |  path: short.txt | line 11: data.path: has 5 bytes, but a sample needs 17
14 |  virtual_nodes: 3 | line 14: train.virtual_nodes: is 3, must be a divisor of train.batch_size
7 |  num_attention_heads: 3 | line 7: model.num_attention_heads: is 3, must be a divisor of
6 |  dropout: 0.999999999 | line 6: model.dropout: is 0.999999999, which is 1 in single precision
2 |devices: [] | line 2: devices: is an empty list, must be a list of at least one mapping
3 |host_memory: 1GiB\nactivation_share: 1 | line 4: activation_share: is '1', must be a number of
2 |devices: [{memory: lots}] | line 2: devices[0].memory: is 'lots', must be a size from 4.00 KiB to
2 |devices: [{memory: 1MiB, imitate: {link: 1kB/s}}] | line 2: devices[0].imitate.link: is '1kB/s', must
2 |devices: [{memory: 1MiB}, {kind: cuda, memory: 1MiB}] | line 2: devices[1].kind: is cuda, but
2 |devices: [{index: 1, memory: 1MiB}] | devices[0].index: can only be used with kind: cuda, and
2 |devices: [{kind: cuda, memory: 1MiB, imitate: {slowdown: 2}}] | devices[0].imitate: can only be used
2 |devices: [{memory: 8KiB}] |! of device memory, the budget is 8.00 KiB
3 |host_memory: 4KiB |! of host memory, the budget is 4.00 KiB
3 |offload_path: nowhere | line 3: offload_path: 'nowhere' cannot hold training state: No such file or
3 |offload_path: text.txt | line 3: offload_path: 'text.txt' cannot hold training state: Not a directory
3 |offload_path: /proc | line 3: offload_path: '/proc' cannot hold training state:
14 |  data_parallel: 2\n  max_data_parallel: 1 | line 15: train.max_data_parallel: is 1, below train.data
14 |  virtual_nodes: 2\n  max_data_parallel: 3 | line 15: train.max_data_parallel: is 3, above train.redu
15 |  autoscale: {rule: troughput} | train.autoscale.rule: is 'troughput', must be throughput, linear
15 |  autoscale: [{threshold: 0.2}] | train.autoscale[0].rule: is missing; write one of throughput,
15 |  autoscale: throughput | line 15: train.autoscale: is 'throughput', must be a mapping of keys to
15 |  autoscale: [{rule: throughput, treshold: 1}] | line 15: train.autoscale.treshold: is no parameter of 'th
15 |  autoscale: [{rule: linear},\n    {rule: straggler, share: 2}] | line 16: train.autoscale[1].share: is
15 |  data_parallel: 2 | line 15: train.data_parallel: is 2, but there is 1 device; write a smaller
15 |  lanes: 2 | line 15: train.lanes: was renamed to train.data_parallel
6 |  hidden_size: 16777216 | line 6: model.hidden_size: is too large: a tensor of
8 |  vocab_size: 16777216 |! even without the activations of layer
13 |  batch_size: 16777216 |! raise the memory of a device to that
9 |  max_position_embeddings: 16\n  freeze: [nothing.*] | line 10: model.freeze: 'nothing.*' matches no
2 |devices: [ | not valid YAML
14 |  batch_size: 4 | line 14: train.batch_size: is given twice; remove one of them
)";

struct Case {
  std::size_t line = 0;
  std::string text, message;
  ExitCode code = kUsage;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  std::istringstream lines(kCases);
  for (std::string line; std::getline(lines, line);) {
    const auto text = line.find(" |") + 2, message = line.find(" |", text) + 2;
    Case& bad = cases.emplace_back();
    bad.line = std::stoul(line);
    bad.text = replaced(line.substr(text, message - 2 - text), "\\n", "\n");
    bad.message = line.substr(message + (line[message] == '!' ? 2 : 1));
    if (line[message] == '!') bad.code = kDoesNotFit;
  }
  return cases;
}

std::string config_with(const Case& bad) {
  std::string text;
  for (std::size_t i = 0; i < std::size(kConfig); ++i)
    text += (i + 1 == bad.line ? bad.text : kConfig[i]) + "\n";
  return text;
}

TEST_F(BadInput, IsReportedByFieldAndLineAndNothingIsWritten) {
  for (const Case& bad : all_cases()) {
    SCOPED_TRACE(bad.text);
    folder_.write("config.yaml", config_with(bad));
    EXPECT_EQ(run({"train", "config.yaml"}), bad.code) << log_.str();
    expect_said({bad.message});
    EXPECT_EQ(out_.str(), "");
    EXPECT_EQ(run({"plan", "config.yaml"}), bad.code) << log_.str();
    // A plan names in its table the trials that do not fit.
    const std::string said = bad.code == kUsage ? log_.str() : out_.str();
    EXPECT_NE(said.find(bad.message), std::string::npos) << said;
    EXPECT_FALSE(std::filesystem::exists("out"));
  }
}

TEST_F(BadInput, LimitsTheOpsOfAStep) {
  const auto text = config_with({5, "  num_hidden_layers: 1000", ""});
  folder_.write("config.yaml", replaced(replaced(text, "batch_size: 4", "batch_size: 65536"),
                                        "virtual_nodes: 2", "virtual_nodes: 65536"));
  EXPECT_EQ(run({"train", "config.yaml"}), kUsage);
  expect_said(
      {"line 14: train.virtual_nodes: is 65536, too many for 2002 layers; use at most 4190"});
}

/// A place where outputs cannot be, and the message.
struct BadPlace {
  std::string place, message;
};

TEST_F(BadInput, RefusesPlacesThatCannotHoldOutputs) {
  folder_.write("config.yaml", config_with({}));
  folder_.write("mine/thesis.tex", "years of work");
  ASSERT_EQ(run({"train", "config.yaml", "output_dir=earlier"}), kDone) << log_.str();
  const auto before = folder_.read("earlier/events.jsonl");
  const std::vector<BadPlace> places{
      {"text.txt", "is a file; choose another"},
      {"text.txt/run", "is a file; choose another"},
      {"mine", "holds files that were not written by a run"},
      {"earlier", "holds an earlier run; add --overwrite to replace it, continue it with"},
      {"/proc/spillway", "cannot be written: /proc: No such file or directory; choose another"},
      {"deep/" + std::string(300, 'x'), "is too long a path"}};
  for (const auto& [place, message] : places) {
    const std::string override = "output_dir=" + place;
    EXPECT_EQ(run({"train", "config.yaml", override.c_str()}), kUsage) << place;
    expect_said({"spillway: output_dir: ", message});
    EXPECT_EQ(out_.str(), "");
  }
  EXPECT_FALSE(std::filesystem::exists("deep"));
  EXPECT_EQ(folder_.read("earlier/events.jsonl"), before);
  EXPECT_EQ(folder_.read("text.txt"), std::string(2000, 'x'));
}

TEST_F(BadInput, RefusesWrongArguments) {
  folder_.write("config.yaml", config_with({}));
  const std::vector<std::pair<std::vector<const char*>, std::string>> all{
      {{}, "subcommand is required"},
      {{"trian", "config.yaml"}, "unknown command 'trian'; did you mean 'train'?"},
      {{"train"}, "config is required"},
      {{"train", "nowhere.yaml"}, "nowhere.yaml"},
      {{"train", "hollow"}, "hollow"},
      {{"train", "config.yaml", "--jsn"}, "--jsn"},
      {{"train", "config.yaml", "train.data_parallel"},
       "'train.data_parallel' is not an override; write it as key="},
      {{"plan", "config.yaml", "train.data_paralel=2"}, "did you mean train.data_parallel?"},
      {{"results"}, "folder is required"},
      {{"results", "nowhere"}, "'nowhere' does not exist"},
      {{"results", "config.yaml"}, "'config.yaml' is a file"},
      {{"results", "hollow"}, "it has no events.jsonl"},
      {{"resume"}, "folder is required"},
      {{"resume", "nowhere"}, "'nowhere' does not exist"},
      {{"resume", "config.yaml"}, "'config.yaml' is a file"},
      {{"resume", "hollow"}, "'hollow' holds no run"},
      {{"verify", "hollow"}, "it has no events.jsonl"},
      {{"plan", "config.yaml", "checkpoint.kep=2"}, "did you mean checkpoint.keep?"},
      {{"plan", "config.yaml", "checkpoint.keep=-1"},
       "checkpoint.keep: is '-1', must be an integer from 0 to 1000"},
      {{"plan", "config.yaml", "home_path=x"}, "home_path: was renamed to offload_path"},
      {{"plan", "config.yaml", "devices[0].link=2GB/s"}, "was renamed to devices[0].imitate.link"},
      {{"completion", "fish"}, "fish"}};
  for (const auto& [arguments, message] : all) {
    EXPECT_EQ(run(arguments), kUsage) << message;
    expect_said({message});
    EXPECT_EQ(out_.str(), "") << message;
  }
  EXPECT_FALSE(std::filesystem::exists("out"));
}

}  // namespace
}  // namespace spillway::testing
