#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/check/bad_input.h"

namespace spillway::testing {
namespace {

constexpr const char* kResnet = R"(output_dir: out
devices: [{memory: 16MiB}]
data: {format: digits, path: digits.csv}
model:
  family: resnet
  hidden_sizes: [4, 8]
  depths: [1, 1]
train: {batch_size: 4, virtual_nodes: 4, max_steps: 1}
)";

/// A replacement in the configuration, and the expected message.
struct BadResnet {
  std::string from, to, message;
};

TEST_F(BadInput, ReportsResnetErrorsByFieldAndLine) {
  std::string lines, digit;
  for (int pixel = 0; pixel < 64; ++pixel) digit += "7,";
  for (int line = 0; line < 20; ++line) lines += digit + "3\n";
  folder_.write("digits.csv", lines);
  const std::vector<BadResnet> all{
      {"[4, 8]", "4", "line 6: model.hidden_sizes: is '4', must be a list"},
      {"[4, 8]", "[]", "line 6: model.hidden_sizes: is an empty list, must be a list"},
      {"[4, 8]", "[4, x]", "line 6: model.hidden_sizes[1]: is 'x', must be"},
      {"[4, 8]", "[4]", "line 7: model.depths: has 2 stages, model.hidden_sizes has 1"},
      {"depths: [1, 1]", "depth: [1]",
       "line 7: model.depth: unknown key; did you mean model.depths"},
      {"[4, 8]\n  depths: [1, 1]", "[1, 1, 1, 1, 1]\n  depths: [1, 1, 1, 1, 1]",
       "line 6: model.hidden_sizes: has 5 stages, but pictures of 8 x 8 cannot be halved as often"},
      {"[4, 8]\n  depths: [1, 1]", "[1, 1, 1, 1]\n  depths: [1, 1, 1, 1]",
       "line 8: train.batch_size: makes virtual nodes of 1 sample, whose channels have only"},
      {"depths: [1, 1]", "depths: [1, 1]\n  freeze: ['*.running_mean']",
       "line 8: model.freeze: '*.running_mean' matches no parameter"},
      {"digits.csv", "digits.csv, augment: rotate",
       "line 3: data.augment: is 'rotate', must be none or shift"},
      {"format: digits", "format: bytes",
       "line 3: data.format: is bytes, which model.family resnet does not read; write digits"}};
  for (const auto& [from, to, message] : all) {
    std::string text = kResnet;
    text.replace(text.find(from), from.size(), to);
    folder_.write("config.yaml", text);
    for (const char* command : {"train", "plan"}) {
      EXPECT_EQ(run({command, "config.yaml"}), kUsage) << log_.str();
      expect_said({message});
      EXPECT_EQ(out_.str(), "");
    }
    EXPECT_FALSE(std::filesystem::exists("out"));
  }
  folder_.write("config.yaml", kResnet);
  EXPECT_EQ(run({"train", "config.yaml"}), kDone) << log_.str();
}

/// Values that are valid alone but contradict each other.
TEST_F(BadInput, ReportsContradictionsTogether) {
  folder_.write("config.yaml", R"(output_dir: text.txt/below
devices: [{memory: 1MiB}, {kind: cuda, index: 1023, memory: 1MiB}]
offload_path: nowhere
model:
  num_attention_heads: 3
data:
  path: [nowhere.txt, text.txt, empty.txt]
train:
  virtual_nodes: 3
  reduction_groups: 2
  data_parallel: 7
  max_data_parallel: 2
  priority: 7
  autoscale:
    - {rule: throughput, treshold: 1, threshold: 2}
    - {rule: straggler, share: 2}
)");
  EXPECT_EQ(run({"train", "config.yaml"}), kUsage);
  std::istringstream said(log_.str());
  std::string line;
  for (const char* begin :
       {"spillway: line 1: output_dir: ", "spillway: line 2: devices[1].kind: is cuda, but ",
        "spillway: line 3: offload_path: 'nowhere' cannot hold",
        "spillway: line 5: model.num_attention_heads: is 3, ",
        "spillway: line 7: data.path: 'nowhere.txt' cannot",
        "spillway: line 7: data.path: 'empty.txt' is empty",
        "spillway: line 9: train.virtual_nodes: is 3, must be",
        "spillway: line 10: train.reduction_groups: is 2, must be",
        "spillway: line 11: train.data_parallel: is 7, but there",
        "spillway: line 12: train.max_data_parallel: is 2, below",
        "spillway: line 15: train.autoscale[0].treshold: is no parameter",
        "spillway: line 15: train.autoscale[0].threshold:",
        "spillway: line 16: train.autoscale[1].share: is 2"}) {
    EXPECT_TRUE(std::getline(said, line) && line.starts_with(begin)) << line << " for " << begin;
  }
  EXPECT_FALSE(std::getline(said, line)) << line;
}

}  // namespace
}  // namespace spillway::testing
