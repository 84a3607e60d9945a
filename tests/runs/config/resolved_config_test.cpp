#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "runs/config/config.h"
#include "tests/support/check/expanded_sweep.h"

namespace spillway {
namespace {

using testing::kShortestConfig;
using testing::messages;

/// Every key with a value that is not its default, in the form and order of to_yaml().
const std::string kEveryKey =
    "name: \"my: run\"\n"
    "output_dir: /tmp/out\n"
    "resume: auto\n"
    "seed: 18446744073709551615\n"
    "devices: [{kind: cpu, memory: 12MiB, imitate: {link: 3MiB/s, slowdown: 2.5, "
    "fault: {kind: hang, after_ops: 7}}}, "
    "{kind: cpu, memory: 1000000001}, {kind: cuda, memory: 8GiB, index: 2}]\n"
    "host_memory: 3KiB\n"
    "activation_share: 0.5\n"
    "offload_path: /tmp/homes\n"
    "data_root: /tmp/data\n"
    "model:\n"
    "  family: gpt\n"
    "  vocab_size: 300\n"
    "  num_hidden_layers: 3\n"
    "  hidden_size: 96\n"
    "  num_attention_heads: 6\n"
    "  intermediate_size: 100\n"
    "  max_position_embeddings: 32\n"
    "  dropout: 0.25\n"
    "  initializer_range: 0.01\n"
    "  layer_norm_eps: 1e-06\n"
    "  freeze: [wte.*, h.0.*]\n"
    "data:\n"
    "  format: bytes\n"
    "  path: [a.txt, \"- b\"]\n"
    "  eval_fraction: 0.1\n"
    "train:\n"
    "  batch_size: 48\n"
    "  virtual_nodes: 12\n"
    "  reduction_groups: 4\n"
    "  data_parallel: 2\n"
    "  max_data_parallel: 3\n"
    "  autoscale: [{rule: linear, loss: 0.5, value: 2}, {rule: straggler}]\n"
    "  priority: 7\n"
    "  max_steps: 70\n"
    "  dtype: bf16\n"
    "  gradient_dtype: bf16\n"
    "  optimizer: sgd\n"
    "  learning_rate: 0.30000000000000004\n"
    "  weight_decay: 0.02\n"
    "  momentum: 0.75\n"
    "  adam_beta1: 0.8\n"
    "  adam_beta2: 0.95\n"
    "  adam_epsilon: 1e-07\n"
    "  max_grad_norm: 2.5\n"
    "  lr_scheduler_type: linear\n"
    "  warmup_ratio: 0.125\n"
    "  eval_steps: 10\n"
    "  eval_batches: 3\n"
    "scheduling:\n"
    "  policy: fifo\n"
    "  sharing: wfs\n"
    "  order: vn_major\n"
    "  double_buffer: false\n"
    "  device_timeout: 7.5\n"
    "checkpoint:\n"
    "  every_steps: 25\n"
    "  every_s: 90\n"
    "  keep: 3\n"
    "sweep:\n"
    "  method: random\n"
    "  run_cap: 12\n"
    "  seed: 77\n"
    "  metric:\n"
    "    name: final_loss\n"
    "    goal: maximize\n"
    "  parameters:\n"
    "    train.learning_rate:\n"
    "      values: [3e-4, 1e-3]\n"
    "      probabilities: [0.25, 0.75]\n"
    "    data.path:\n"
    "      values: [a, [b, c]]\n"
    "    train.data_parallel:\n"
    "      value: 3\n"
    "    seed:\n"
    "      distribution: int_uniform\n"
    "      min: 1000000\n"
    "      max: 2000000\n"
    "    train.weight_decay:\n"
    "      distribution: log_normal\n"
    "      mu: -3.5\n"
    "      sigma: 0.5\n"
    "    train.warmup_ratio:\n"
    "      distribution: q_uniform\n"
    "      min: 0\n"
    "      max: 1\n"
    "      q: 0.001\n";

RunConfig read(const std::string& text) {
  Findings findings;
  auto config = read_config(parse_yaml(text), findings);
  EXPECT_EQ(messages(findings), std::vector<std::string>{});
  return config;
}

TEST(ResolvedConfig, HasEveryKeyAsItWasRead) { EXPECT_EQ(to_yaml(read(kEveryKey)), kEveryKey); }

/// kEveryKey with other lines from "model:" to the data's path.
std::string with_model(const std::string& lines) {
  const auto begin = kEveryKey.find("model:"), end = kEveryKey.find("  path: [a.txt");
  return kEveryKey.substr(0, begin) + lines + kEveryKey.substr(end);
}

TEST(ResolvedConfig, AResnetHasKeysOfItsOwn) {
  const std::string text = with_model(
      "model:\n"
      "  family: resnet\n"
      "  hidden_sizes: [4, 6]\n"
      "  depths: [2, 3]\n"
      "  dropout: 0.25\n"
      "  batch_norm_eps: 0.001\n"
      "  batch_norm_momentum: 0.2\n"
      "  freeze: [bn1.*]\n"
      "data:\n"
      "  format: digits\n"
      "  augment: none\n");
  EXPECT_EQ(to_yaml(read(text)), text);
  const auto resnet = read(text).resnet;
  EXPECT_EQ(std::tie(resnet.hidden_sizes, resnet.depths, resnet.dropout, resnet.batch_norm_eps,
                     resnet.batch_norm_momentum, resnet.freeze),
            std::tuple(std::vector<std::int64_t>{4, 6}, std::vector<std::int64_t>{2, 3}, 0.25,
                       0.001, 0.2, std::vector<std::string>{"bn1.*"}));
}

TEST(ResolvedConfig, AnMlpHasKeysOfItsOwn) {
  const std::string model =
      "model:\n"
      "  family: mlp\n"
      "  num_hidden_layers: 3\n"
      "  hidden_size: 96\n"
      "  hidden_act: tanh\n"
      "  dropout: 0.25\n"
      "  freeze: [h.0.*]\n"
      "data:\n"
      "  format: digits\n"
      "  augment: shift\n";
  const std::string text = with_model(model);
  EXPECT_EQ(to_yaml(read(text)), text);
  EXPECT_EQ(read(text).data.augment, Augmentation::shift);
  const auto mlp = read(text).mlp;
  EXPECT_EQ(
      std::tie(mlp.num_hidden_layers, mlp.hidden_size, mlp.hidden_act, mlp.dropout, mlp.freeze),
      std::tuple(3, 96, Activation::tanh, 0.25, std::vector<std::string>{"h.0.*"}));
}

TEST(ResolvedConfig, TokensHaveAType) {
  std::string text = kEveryKey;
  const std::string bytes = "  format: bytes\n";
  text.replace(text.find(bytes), bytes.size(), "  format: tokens\n  dtype: uint32\n");
  EXPECT_EQ(to_yaml(read(text)), text);
}

TEST(ResolvedConfig, EarlyStoppingIsWrittenWhereItIsOn) {
  std::string text = kEveryKey;
  const std::string goal = "    goal: maximize\n";
  text.replace(text.find(goal), goal.size(),
               "    goal: minimize\n"
               "  early_terminate:\n    type: hyperband\n    min_iter: 20\n    eta: 4\n");
  const RunConfig config = read(text);
  EXPECT_EQ(config.session.early_terminate, (EarlyTerminate{20, 4}));
  EXPECT_EQ(to_yaml(config), text);
  EXPECT_EQ(to_yaml(read(kEveryKey)).find("early_terminate"), std::string::npos);
}

TEST(ResolvedConfig, EveryKeyReachesItsField) {
  const auto values = [](const auto&... all) { return std::tuple(all...); };
  using Text = std::string;
  const RunConfig config = read(kEveryKey);
  const SessionConfig& session = config.session;
  EXPECT_EQ(values(config.name, config.output_dir, config.resume, config.data_root),
            values(Text("my: run"), Text("/tmp/out"), ResumeMode::automatic,
                   std::filesystem::path("/tmp/data")));
  const auto& devices = session.devices;
  EXPECT_EQ(values(devices[0].imitate, devices[1].imitate, devices[1].memory, devices[2].index),
            values(DeviceImitation{3_MiB, 2.5, {FaultKind::hang, 7}}, DeviceImitation{},
                   Bytes{1'000'000'001}, 2));
  EXPECT_EQ(
      values(session.host_memory, session.activation_share, session.offload_path, session.policy,
             session.sharing, session.double_buffer, session.device_timeout_s),
      values(3_KiB, 0.5, std::filesystem::path("/tmp/homes"), PolicyKind::fifo, SharingKind::wfs,
             false, 7.5));
  const GptConfig& gpt = config.gpt;
  EXPECT_EQ(values(gpt.vocab_size, gpt.num_hidden_layers, gpt.hidden_size, gpt.num_attention_heads,
                   gpt.intermediate_size, gpt.max_position_embeddings),
            values(300, 3, 96, 6, 100, 32));
  EXPECT_EQ(values(gpt.dropout, gpt.initializer_range, gpt.layer_norm_eps, gpt.freeze),
            values(0.25, 0.01, 1e-6, std::vector<Text>{"wte.*", "h.0.*"}));
  EXPECT_EQ(values(config.data.paths, config.data.eval_fraction),
            values(std::vector<Text>{"a.txt", "- b"}, 0.1));
  const TrainConfig& train = config.train;
  EXPECT_EQ(values(train.seed, train.order, train.batch_size, train.virtual_nodes,
                   train.reduction_groups, train.data_parallel, train.max_data_parallel,
                   train.priority, train.max_steps, train.eval_steps, train.eval_batches),
            values(~std::uint64_t{0}, OrderChoice::vn_major, 48, 12, 4, 2, 3, 7, 70, 10, 3));
  EXPECT_EQ(values(train.dtype, train.gradient_dtype, train.optimizer, train.lr_scheduler_type),
            values(FloatType::bf16, FloatType::bf16, OptimizerKind::sgd, LrSchedulerType::linear));
  EXPECT_EQ(values(train.learning_rate, train.weight_decay, train.momentum, train.adam_beta1,
                   train.adam_beta2, train.adam_epsilon, train.max_grad_norm, train.warmup_ratio),
            values(0.1 + 0.2, 0.02, 0.75, 0.8, 0.95, 1e-7, 2.5, 0.125));
  ASSERT_EQ(train.autoscale.size(), 2u);
  EXPECT_EQ(train.autoscale[0].params,
            (std::map<std::string, double>{{"loss", 0.5}, {"value", 2}}));
  EXPECT_EQ(train.autoscale[1].rule, "straggler");
  const CheckpointConfig& checkpoint = config.checkpoint;
  EXPECT_EQ(values(checkpoint.every_steps, checkpoint.every_s, checkpoint.keep),
            values(25, 90.0, 3));
  const SweepConfig& sweep = config.sweep;
  EXPECT_EQ(values(sweep.metric.name, sweep.metric.goal, sweep.method, sweep.run_cap, sweep.seed),
            values(MetricKind::final_loss, MetricGoal::maximize, SweepMethod::random, 12, 77u));
  ASSERT_EQ(sweep.parameters.size(), 6u);
  EXPECT_EQ(sweep.parameters[0].key, "train.learning_rate");
  EXPECT_EQ(sweep.parameters[1].values.size(), 2u);
}

TEST(ResolvedConfig, DefaultsReadBackEqual) {
  const auto written = to_yaml(read(kShortestConfig));
  EXPECT_EQ(to_yaml(read(written)), written);
  EXPECT_NE(written.find("  learning_rate: 0.001\n"), std::string::npos) << written;
}

/// Whether the configuration of any of its trials makes all of them again.
void expect_same_trials(const std::string& text) {
  const auto [trials, problems] = testing::expand(text);
  EXPECT_EQ(problems, std::vector<std::string>{});
  const auto again = testing::expand(to_yaml(trials.back().config)).trials;
  ASSERT_EQ(again.size(), trials.size());
  for (std::size_t t = 0; t < trials.size(); ++t) {
    EXPECT_EQ(again[t].name, trials[t].name);
    EXPECT_EQ(to_yaml(again[t].config), to_yaml(trials[t].config));
    EXPECT_EQ(testing::own_values(again[t].config), testing::own_values(trials[t].config));
  }
}

TEST(ResolvedConfig, MakesTheSameTrials) {
  expect_same_trials(kEveryKey);
  expect_same_trials(kShortestConfig + "sweep: {parameters: {seed: {values: [1, 2]}}}\n");
}

/// What a trial drew is not the base of the others.
TEST(ResolvedConfig, ASweptKeyIsAsTheDocumentHasIt) {
  const std::string sweep =
      "sweep:\n  method: random\n  run_cap: 3\n  parameters:\n"
      "    train.learning_rate: {min: 0.001, max: 0.1}\n    model.dropout: {value: 0.25}\n";
  const auto without = to_yaml(testing::expand(kShortestConfig + sweep).trials[0].config);
  EXPECT_EQ(without.find("\n  learning_rate: "), std::string::npos) << without;
  EXPECT_EQ(without.find("\n  dropout: "), std::string::npos) << without;
  const std::string base = "train: {learning_rate: 1e-2}\n";
  const auto with = to_yaml(testing::expand(kShortestConfig + base + sweep).trials[0].config);
  EXPECT_NE(with.find("\n  learning_rate: 1e-2\n"), std::string::npos) << with;
  expect_same_trials(kShortestConfig + base + sweep);
}

/// Where the value decides which other keys there are, or how the list was written.
TEST(ResolvedConfig, ASweptKindLeavesItsSectionAlone) {
  expect_same_trials(
      "devices: [{memory: 1GiB}]\n"
      "data: {format: digits, path: [x]}\n"
      "model: {dropout: 0.1}\n"
      "train: {virtual_nodes: 4, autoscale: {rule: linear}}\n"
      "sweep: {parameters: {model.family: {values: [mlp, resnet]},\n"
      "  'data.path[0]': {values: [x, y]}, train.autoscale.loss: {values: [0.1, 0.2]}}}\n");
  expect_same_trials(kShortestConfig +
                     "sweep: {parameters: {data.format: {values: [bytes, tokens]}}}\n");
}

/// Even where the trials replace the seed that the draws come from.
TEST(ResolvedConfig, MakesTheSameDraws) {
  for (const auto& distribution : kDistributions) {
    if (distribution.shape == Distribution::Shape::constant) continue;
    std::string entry = "values: [0.1, 0.2, 0.3]";
    if (distribution.is_bounded()) entry = "min: 1, max: 100000";
    if (distribution.is_normal()) entry = "mu: 1, sigma: 0.3";
    SCOPED_TRACE(distribution.name);
    expect_same_trials(kShortestConfig + "seed: 9\nsweep:\n  method: random\n  run_cap: 8\n" +
                       "  parameters:\n    seed: {min: 0, max: 1000}\n    train.max_grad_norm: " +
                       "{distribution: " + std::string(distribution.name) + ", " + entry + "}\n");
  }
}

}  // namespace
}  // namespace spillway
