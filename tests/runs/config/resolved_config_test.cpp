#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "runs/config/config.h"
#include "runs/config/sweep.h"
#include "tests/support/check/expanded_sweep.h"

namespace spillway {
namespace {

using testing::kShortestConfig;
using testing::messages;
using testing::read_valid;

/// Every key with a value that is not its default. {} stands for the model and the beginning of the
/// data.
constexpr const char* kEveryKey = R"(
name: "my: run"
output_dir: /tmp/out
resume: auto
report_to: [tensorboard]
seed: 18446744073709551615
devices:
  - {memory: 12MiB, imitate: {link: 3MiB/s, slowdown: 2.5, fault: {kind: hang, after_ops: 7}}}
  - {memory: 1000000001}
  - {kind: cuda, memory: 8GiB, index: 2}
host_memory: 3KiB
activation_share: 0.5
offload_path: /tmp/homes
data_root: /tmp/data
{}, path: [a.txt, "- b"], eval_fraction: 0.1}
train: {batch_size: 48, virtual_nodes: 12, reduction_groups: 4, data_parallel: 2,
  max_data_parallel: 3, autoscale: [{rule: linear, loss: 0.5, value: 2}, {rule: straggler}],
  priority: 7, max_steps: 70, dtype: bf16, gradient_dtype: bf16, optimizer: sgd,
  learning_rate: 0.30000000000000004, weight_decay: 0.02, momentum: 0.75, adam_beta1: 0.8,
  adam_beta2: 0.95, adam_epsilon: 1e-07, max_grad_norm: 2.5, lr_scheduler_type: linear,
  warmup_ratio: 0.125, eval_steps: 10, eval_batches: 3}
scheduling: {policy: fifo, sharing: wfs, order: vn_major, double_buffer: false, device_timeout: 7.5}
checkpoint: {every_steps: 25, every_s: 90, keep: 3}
sweep:
  method: random
  run_cap: 12
  seed: 77
  metric: {name: final_loss, goal: maximize}
  parameters:
    train.learning_rate: {values: [3e-4, 1e-3], probabilities: [0.25, 0.75]}
    data.path: {values: [a, [b, c]]}
    train.data_parallel: {value: 3}
    seed: {distribution: int_uniform, min: 1000000, max: 2000000}
    train.weight_decay: {distribution: log_normal, mu: -3.5, sigma: 0.5}
    train.warmup_ratio: {distribution: q_uniform, min: 0, max: 1, q: 0.001}
)";

std::string with_model(const std::string& model_and_data) {
  std::string text = kEveryKey;
  return text.replace(text.find("{}, path"), 2, model_and_data);
}

const std::string kGpt = with_model(R"(model: {vocab_size: 300, num_hidden_layers: 3,
  hidden_size: 96, num_attention_heads: 6, intermediate_size: 100, max_position_embeddings: 32,
  dropout: 0.25, initializer_range: 0.01, layer_norm_eps: 1e-06, freeze: [wte.*, h.0.*]}
data: {format: bytes)");

/// What is written reads back: the configuration after it.
RunConfig read_again(const std::string& text) {
  const std::string written = to_yaml(read_valid(text));
  EXPECT_EQ(to_yaml(read_valid(written)), written);
  return read_valid(written);
}

TEST(ResolvedConfig, WritesALineForEachKeyOfASection) {
  const std::string written = to_yaml(read_valid(kGpt));
  for (const char* lines :
       {"name: \"my: run\"\n", "host_memory: 3KiB\n", "train:\n  batch_size: 48\n  virtual",
        "  path: [a.txt, \"- b\"]\n", "      probabilities: [0.25, 0.75]\n",
        "devices: [{kind: cpu, memory: 12MiB, imitate: {link: 3MiB/s, slowdown: 2.5, fault: {kind: "
        "hang, after_ops: 7}}}, {kind: cpu, memory: 1000000001}, {kind: cuda, memory: 8GiB, index: "
        "2}]\n"})
    EXPECT_NE(written.find(lines), std::string::npos) << lines << "\nin " << written;
}

TEST(ResolvedConfig, WritesRatesInTheUnitsOfNetworks) {
  for (const std::string rate : {"1GB/s", "2GB/s", "125MB/s", "20MiB/s", "3KiB/s"}) {
    const std::string hosts = "hosts: {size: 2, network_rate: " + rate + "}\n";
    const std::string written = to_yaml(read_valid(kShortestConfig + hosts));
    EXPECT_NE(written.find("  network_rate: " + rate + "\n"), std::string::npos) << written;
  }
}

TEST(ResolvedConfig, HasTheKeysOfAResnet) {
  const auto resnet = read_again(with_model(R"(model: {family: resnet, hidden_sizes: [4, 6],
  depths: [2, 3], dropout: 0.25, batch_norm_eps: 0.001, batch_norm_momentum: 0.2, freeze: [bn1.*]}
data: {format: digits)"))
                          .resnet;
  EXPECT_EQ(std::tie(resnet.hidden_sizes, resnet.depths, resnet.dropout, resnet.batch_norm_eps,
                     resnet.batch_norm_momentum, resnet.freeze),
            std::tuple(std::vector<std::int64_t>{4, 6}, std::vector<std::int64_t>{2, 3}, 0.25,
                       0.001, 0.2, std::vector<std::string>{"bn1.*"}));
}

TEST(ResolvedConfig, HasTheKeysOfACnn) {
  const auto cnn = read_again(with_model(R"(model: {family: cnn, num_channels: 1, image_size: 9,
  num_classes: 4, input_scale: 0.5, batch_norm_eps: 0.001, batch_norm_momentum: 0.2,
  pieces: {channels: auto, height: 3}, freeze: [0.*], layers: [
  {type: conv, out_channels: 4, kernel_size: [1, 3], stride: 2, padding: [0, 1], batch_norm: true},
  {type: conv, name: b, out_channels: 4, kernel_size: 1, inputs: [input], stride: 2,
   batch_norm: norm}, {type: add, inputs: [0, b], activation: gelu},
  {type: dropout, p: 0.25}, {type: linear, out_features: 4, activation: none}]}
data: {format: tensors)"))
                       .cnn;
  using enum CnnLayerType;
  const std::vector<CnnLayerConfig> layers{
      {.out_channels = 4,
       .kernel_size = {1, 3},
       .stride = {2, 2},
       .padding = {0, 1},
       .batch_norm = "true"},
      {.name = "b",
       .inputs = {"input"},
       .out_channels = 4,
       .kernel_size = {1, 1},
       .stride = {2, 2},
       .batch_norm = "norm"},
      {.type = add, .inputs = {"0", "b"}, .activation = CnnActivation::gelu},
      {.type = dropout, .p = 0.25},
      {.type = linear, .out_features = 4}};
  EXPECT_EQ(cnn.layers, layers);
  EXPECT_EQ(std::tie(cnn.num_channels, cnn.image_size, cnn.num_classes, cnn.input_scale,
                     cnn.batch_norm_eps, cnn.batch_norm_momentum, cnn.pieces.channels,
                     cnn.pieces.height, cnn.freeze),
            std::tuple(1, 9, 4, 0.5, 0.001, 0.2, 0, 3, std::vector<std::string>{"0.*"}));
}

TEST(ResolvedConfig, HasTheKeysOfAnRnn) {
  const auto rnn = read_again(with_model(R"(model: {family: rnn, preset: nmt, vocab_size: 300,
  max_position_embeddings: 8, embedding_size: 6, hidden_size: 7, num_hidden_layers: 3,
  chunk_steps: 2, num_classes: 4, dropout: 0.25, tie_word_embeddings: true,
  pieces: {vocabulary: auto, hidden: auto}, freeze: [embed.*]}
data: {format: tokens)"))
                       .rnn;
  EXPECT_EQ(std::tie(rnn.preset, rnn.vocab_size, rnn.max_position_embeddings, rnn.embedding_size,
                     rnn.hidden_size, rnn.num_hidden_layers, rnn.chunk_steps, rnn.num_classes,
                     rnn.dropout, rnn.tie_word_embeddings, rnn.pieces.vocabulary, rnn.pieces.hidden,
                     rnn.freeze),
            std::tuple(RnnPreset::nmt, 300, 8, 6, 7, 3, 2, 4, 0.25, true, 0, 0,
                       std::vector<std::string>{"embed.*"}));
}

TEST(ResolvedConfig, HasTheKeysOfAnMlp) {
  const auto config = read_again(with_model(R"(model: {family: mlp, num_hidden_layers: 3,
  hidden_size: 96, hidden_act: tanh, dropout: 0.25, freeze: [h.0.*]}
data: {format: digits, augment: shift)"));
  EXPECT_EQ(config.data.augment, Augmentation::shift);
  const auto& mlp = config.mlp;
  EXPECT_EQ(
      std::tie(mlp.num_hidden_layers, mlp.hidden_size, mlp.hidden_act, mlp.dropout, mlp.freeze),
      std::tuple(3, 96, Activation::tanh, 0.25, std::vector<std::string>{"h.0.*"}));
}

TEST(ResolvedConfig, WritesTheTypeOfTokens) {
  EXPECT_EQ(read_again(with_model("data: {format: tokens, dtype: uint32")).data.dtype,
            TokenType::uint32);
}

TEST(ResolvedConfig, WritesAnAdapterIfThereIsOne) {
  const std::string text = with_model(R"(model: {family: torch, path: net.spw}
adapter: {r: 4, alpha: 2.5, dropout: 0.25, target_modules: [q_proj, "1.v_proj"]}
data: {format: tokens)");
  const RunConfig config = read_again(text);
  EXPECT_EQ(config.adapter.value().lora,
            (LoraConfig{
                .r = 4, .alpha = 2.5, .dropout = 0.25, .target_modules = {"q_proj", "1.v_proj"}}));
  const auto contract = contract_fields(config);
  EXPECT_EQ(contract.at("adapter.type"), "lora");
  EXPECT_EQ(contract.at("adapter.r"), "4");
  EXPECT_EQ(contract.at("adapter.target_modules"), "[q_proj, 1.v_proj]");
  EXPECT_EQ(to_yaml(read_valid(kGpt)).find("adapter"), std::string::npos);
  EXPECT_FALSE(contract_fields(read_valid(kGpt)).contains("adapter.type"));
}

TEST(ResolvedConfig, HasTheValueOfASweptAdapterBesideTheSweep) {
  for (const std::string beside : {"", "r: 2, "}) {
    Findings findings;
    const auto trials = expand_trials(
        parse_yaml("devices: [{memory: 1MiB}]\nmodel: {family: torch, path: net.spw}\nadapter: {" +
                   beside +
                   "target_modules: all-linear}\ndata: {path: a}\n"
                   "sweep: {parameters: {adapter.r: {values: [4, 16]}}}\n"),
        findings);
    EXPECT_EQ(messages(findings), std::vector<std::string>{});
    ASSERT_EQ(trials.size(), 2u);
    EXPECT_EQ(trials[1].config.adapter.value().lora.r, 16);
    EXPECT_EQ(read_valid(to_yaml(trials[0].config)).adapter.value().lora.r, beside.empty() ? 8 : 2);
  }
}

TEST(ResolvedConfig, WritesEarlyStoppingIfItIsOn) {
  std::string text = kGpt;
  const std::string goal = "goal: maximize}\n";
  text.replace(text.find(goal), goal.size(),
               "goal: minimize}\n  early_terminate: {type: hyperband, min_iter: 20, eta: 4}\n");
  const MetricKind metric = MetricKind::final_loss;
  EXPECT_EQ(read_again(text).session.early_terminate,
            (EarlyTerminate{.min_iter = 20, .eta = 4, .metric = metric}));
  for (const auto& [rule, expected] :
       {std::pair{"hyperband, min_iter: 20, brackets: 2",
                  EarlyTerminate{.min_iter = 20, .brackets = 2, .metric = metric}},
        {"asha, min_iter: 20, max_concurrent_trials: 4", EarlyTerminate{.min_iter = 20,
                                                         .type = EarlyTerminateKind::asha,
                                                         .max_concurrent_trials = 4,
                                                         .metric = metric}},
        {"median, min_iter: 20, interval: 7",
         EarlyTerminate{
             .min_iter = 20, .type = EarlyTerminateKind::median, .interval = 7, .metric = metric}},
        {"pbt, min_iter: 20, quantile: 0.5", EarlyTerminate{.min_iter = 20,
                                             .type = EarlyTerminateKind::pbt,
                                             .quantile = 0.5,
                                             .seed = read_valid(kGpt).sweep.seed,
                                             .metric = metric}}}) {
    std::string other = text;
    const std::string first = "hyperband, min_iter: 20, eta: 4";
    other.replace(other.find(first), first.size(), rule);
    EXPECT_EQ(read_again(other).session.early_terminate, expected) << rule;
  }
  EXPECT_EQ(to_yaml(read_valid(kGpt)).find("early_terminate"), std::string::npos);
}

TEST(ResolvedConfig, WritesEveryKeyToItsField) {
  const auto values = [](const auto&... all) { return std::tuple(all...); };
  using Text = std::string;
  const RunConfig config = read_again(kGpt);
  const SessionConfig& session = config.session;
  EXPECT_EQ(
      values(config.name, config.output_dir, config.resume, config.report_to, config.data_root),
      values(Text("my: run"), Text("/tmp/out"), ResumeMode::automatic,
             std::vector<Reporter>{Reporter::tensorboard}, std::filesystem::path("/tmp/data")));
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
  EXPECT_EQ(train.autoscale[1].rule, RuleKind::straggler);
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

TEST(ResolvedConfig, ReadsDefaultsBackEqual) {
  const auto written = to_yaml(read_valid(kShortestConfig));
  EXPECT_EQ(to_yaml(read_valid(written)), written);
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
  expect_same_trials(kGpt);
  expect_same_trials(kShortestConfig + "sweep: {parameters: {seed: {values: [1, 2]}}}\n");
}

/// What a trial drew is not the base of the others.
TEST(ResolvedConfig, KeepsASweptKeyAsTheDocumentHasIt) {
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
TEST(ResolvedConfig, LeavesTheSectionOfASweptKindAlone) {
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
