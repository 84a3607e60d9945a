#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>

#include "tests/support/check/bad_input.h"

namespace spillway::testing {
namespace {

/// A key, and values that it refuses.
constexpr const char* kRefused = R"(name: [a] | {a: 1} | ''
resume: yes | true | always
seed: -1 | 1.5 | 18446744073709551616 | x | [1]
devices: {} | 64MiB | [1] | [{}] | [{memory: 17TiB}] | [{memory: [1]}] | [{memory: 1MiB, colour: red}]
devices[1].memory: -1MiB | 1 | x
devices[1].imitate: {slowdown: 1001} | {fault: {kind: fail, after_ops: -1}} | {link: fast} | 3
host_memory: lots | -1MiB | 1XB | 99999999999GiB | 1MiB MiB | 0
activation_share: -0.1 | 1 | 0.95 | x | nan
offload_path: nowhere | text.txt | /proc | [a]
data_root: [a] | {a: 1}
model.family: llama | '' | [gpt]
model.num_hidden_layers: 0 | 1025 | x | [1] | {a: 1} | '' | 1.5
model.hidden_size: 0 | 17 | 16777217 | 1.0
model.num_attention_heads: 0 | 3 | 64 | x
model.intermediate_size: -1 | x | 16777217
model.max_position_embeddings: 0 | 1e2
model.vocab_size: 255 | 0 | x | -256
model.dropout: 1 | -0.1 | 1.5 | nan | inf
model.initializer_range: -1 | nan | x
model.layer_norm_eps: -1 | inf | x
model.freeze: nothing.* | {a: 1} | [[a]]
data.format: csv | '' | [bytes] | digits
data.path: '' | [] | {a: b} | [text.txt, nowhere.txt] | /dev/null
data.eval_fraction: 1 | -0.1 | nan | 0.99999999
train.batch_size: 0 | 3 | 1.5 | -1 | 99999999999999999999 | 0x10 | 1e3 | ' 1' | x | [1] | {a: 1} | ''
train.virtual_nodes: -1 | 3 | 65537 | x
train.reduction_groups: -1 | 3 | 4 | x
train.data_parallel: 0 | 3 | many | 1.5 | Auto
train.max_data_parallel: -1 | 9 | x
train.autoscale: {rule: fast} | {rule: throughput, threshold: nan} | {rule: straggler, share: 2}
train.priority: 0 | 101 | x
train.max_steps: 0 | -1 | 1000000000001 | 1e3 | x
train.dtype: fp16 | BF16 | float32
train.gradient_dtype: fp16 | ''
train.optimizer: adam | AdamW | [sgd]
train.learning_rate: nan | inf | -1 | 1e999 | 1,5 | 0x1p3 | x
train.weight_decay: -0.1 | nan | 1,0
train.momentum: 1 | -1 | x
train.adam_beta1: 1 | -0.1 | nan
train.adam_beta2: 1 | 1.0000 | x
train.adam_epsilon: -1e-8 | nan
train.max_grad_norm: -1 | inf | x
train.lr_scheduler_type: step | Cosine
train.warmup_ratio: 1 | 1.1 | -0.1 | nan
train.eval_steps: -1 | x | 1.5
train.eval_batches: 0 | -1 | x
scheduling.policy: nothing | [a] | FIFO
scheduling.sharing: nothing | [a] | WFS
scheduling.order: nothing | [a] | VN_major
scheduling.double_buffer: yes | 1 | True | [true]
scheduling.device_timeout: 0 | 86401 | nan | x
checkpoint.every_steps: -1 | 1.5 | x
checkpoint.every_s: -1 | nan | x
checkpoint.keep: -1 | 1001 | x
sweep.method: bayes | ''
sweep.run_cap: -1 | x | 1.5
sweep.seed: -1 | x
sweep.metric: {name: accuracy} | {goal: best} | loss
sweep.parameters: [1] | {train.learning_rate: 1} | {seed: {values: [1, 1]}} | {devices: {values: [1, 2]}}
sweep.early_terminate: {type: hyperband, min_iter: 500} | true
)";

constexpr const char* kWholeConfig = R"(output_dir: out
devices: [{memory: 1MiB}, {memory: 1MiB}]
model: {num_hidden_layers: 2, hidden_size: 16, num_attention_heads: 4, max_position_embeddings: 16}
data: {path: text.txt}
train: {batch_size: 4, virtual_nodes: 2, max_steps: 20}
)";

TEST_F(BadInput, RefusesValuesByTheirKey) {
  folder_.write("config.yaml", kWholeConfig);
  std::istringstream lines(kRefused);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(": ");
    const std::string key = line.substr(0, colon);
    for (auto begin = colon + 2; begin <= line.size();) {
      const auto end = std::min(line.find(" | ", begin), line.size());
      const std::string override = key + "=" + line.substr(begin, end - begin);
      SCOPED_TRACE(override);
      EXPECT_EQ(run({"plan", "config.yaml", "--no-pilot", override.c_str()}), kUsage);
      expect_said({key});
      EXPECT_EQ(out_.str(), "");
      begin = end + 3;
    }
  }
  EXPECT_FALSE(std::filesystem::exists("out"));
  EXPECT_EQ(run({"plan", "config.yaml", "--no-pilot"}), kDone) << "the control";
}

}  // namespace
}  // namespace spillway::testing
