#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>

#include "models/families/mlp.h"
#include "models/pictures/cnn.h"
#include "models/text/rnn.h"
#include "tests/support/models/small_cnn.h"
#include "tests/support/models/small_resnet.h"
#include "tests/support/models/small_rnn.h"
#include "tests/support/models/tiny_gpt.h"

namespace spillway::testing {

/// Random draws, all from one seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  int between(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <typename Value>
  Value one_of(std::initializer_list<Value> values) {
    return values.begin()[between(0, static_cast<int>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 random_;
};

/// The settings that determine the bits of a trial (docs/exactness.md), and their text.
struct Contract {
  std::string text;
  TrialConfig trial;
  bool drops_out = false;
};

/// Any model family of any small size, with any training settings.
class RandomContract {
 public:
  explicit RandomContract(std::uint64_t seed) : draw_(seed) {
    contract_.trial.name = "contract " + std::to_string(seed);
    draw_train();
    switch (draw_.between(0, 4)) {
      case 0:
        draw_gpt();
        break;
      case 1:
        draw_mlp();
        break;
      case 2:
        draw_resnet();
        break;
      case 3:
        draw_cnn();
        break;
      default:
        draw_rnn();
    }
    if (draw_.chance(20)) drop_evaluation();
    if (draw_.chance(25)) contract_.trial.train.dtype = FloatType::bf16;
    if (draw_.chance(25)) contract_.trial.train.gradient_dtype = FloatType::bf16;
    text_ << train();
    contract_.text = text_.str();
  }
  const Contract& operator*() const { return contract_; }

 private:
  void draw_train() {
    TrainConfig& t = contract_.trial.train;
    t.seed = static_cast<std::uint64_t>(draw_.between(1, 1000));
    t.reduction_groups = draw_.between(1, 8);
    t.virtual_nodes = t.reduction_groups * draw_.between(1, t.reduction_groups > 4 ? 2 : 3);
    t.max_steps = draw_.between(4, 6);
    t.optimizer = draw_.one_of({OptimizerKind::adamw, OptimizerKind::adamw, OptimizerKind::sgd});
    t.learning_rate = draw_.one_of({1e-4, 1e-3, 5e-3});
    t.weight_decay = draw_.one_of({0.0, 0.1});
    t.momentum = draw_.one_of({0.0, 0.9});
    t.max_grad_norm = draw_.one_of({0.0, 0.1, 1.0});
    t.lr_scheduler_type =
        draw_.one_of({LrSchedulerType::cosine, LrSchedulerType::linear, LrSchedulerType::constant});
    t.warmup_ratio = draw_.one_of({0.0, 0.3});
    t.eval_steps = draw_.between(0, 4);
    t.eval_batches = draw_.between(1, 2);
  }

  /// `samples` of a virtual node.
  void cut_batch(int samples) {
    contract_.trial.train.batch_size = samples * contract_.trial.train.virtual_nodes;
  }

  double draw_dropout() {
    const double dropout = draw_.one_of({0.0, 0.1, 0.3});
    contract_.drops_out = dropout > 0;
    return dropout;
  }

  void draw_gpt() {
    GptConfig c;
    c.vocab_size = 64;
    c.num_hidden_layers = draw_.between(1, 3);
    c.num_attention_heads = draw_.one_of({1, 2, 4});
    c.hidden_size = c.num_attention_heads * draw_.between(2, 8);
    c.max_position_embeddings = draw_.between(2, 12);
    c.dropout = draw_dropout();
    if (draw_.chance(20)) c.freeze = {draw_.one_of({"wte.*", "h.0.*", "wpe.*"})};
    if (draw_.chance(30)) {
      c.pieces = {draw_.between(1, static_cast<int>(c.num_attention_heads)), draw_.between(1, 8),
                  draw_.between(1, 8)};
    }
    const std::int64_t tokens = c.max_position_embeddings + 1;
    const std::uint64_t samples = draw_text(tokens);
    contract_.trial.model = [c](std::int64_t vn_size) { return make_gpt(c, vn_size); };
    cut_batch(draw_.between(1, 3));
    text_ << "gpt: blocks " << c.num_hidden_layers << ", heads " << c.num_attention_heads
          << ", hidden " << c.hidden_size << ", positions " << tokens - 1 << ", dropout "
          << c.dropout << ", pieces " << c.pieces.attention << " " << c.pieces.mlp << " "
          << c.pieces.vocabulary << ", frozen " << (c.freeze.empty() ? "-" : c.freeze[0])
          << ", samples " << samples;
  }

  void draw_rnn() {
    RnnConfig c;
    c.preset = draw_.one_of({RnnPreset::rnntc, RnnPreset::rnnlm, RnnPreset::nmt});
    c.vocab_size = 64;
    c.num_hidden_layers = draw_.between(1, 2);
    c.hidden_size = draw_.between(2, 16);
    c.max_position_embeddings = 2 * draw_.between(1, 5);
    c.chunk_steps = draw_.between(1, 6);
    c.num_classes = draw_.between(2, 6);
    c.dropout = draw_dropout();
    c.tie_word_embeddings = c.preset != RnnPreset::rnntc && draw_.chance(30);
    if (!c.tie_word_embeddings) c.embedding_size = draw_.between(2, 16);
    if (draw_.chance(30)) c.pieces.vocabulary = draw_.between(2, 8);
    if (draw_.chance(30)) {  // few steps: pools of activations have little room for small blocks
      c.pieces.hidden = std::min<std::int64_t>(c.hidden_size, draw_.between(2, 3));
      c.max_position_embeddings = 2 * draw_.between(1, 2);
      c.chunk_steps = 1;
    }
    if (draw_.chance(20)) c.freeze = {draw_.one_of({"*_l0", "*embed.*", "*.weight_hh_*"})};
    const std::uint64_t samples = draw_text(c.max_position_embeddings + 1);
    contract_.trial.model = [c](std::int64_t vn_size) { return make_rnn(c, vn_size); };
    cut_batch(draw_.between(1, 3));
    text_ << to_string(c.preset) << ": layers " << c.num_hidden_layers << ", hidden "
          << c.hidden_size << ", embedding " << c.embedding_size << ", positions "
          << c.max_position_embeddings << " by " << c.chunk_steps << ", classes " << c.num_classes
          << ", dropout " << c.dropout << ", tied " << c.tie_word_embeddings << ", pieces "
          << c.pieces.vocabulary << " and " << c.pieces.hidden << ", frozen "
          << (c.freeze.empty() ? "-" : c.freeze[0]) << ", samples " << samples;
  }

  /// Returns the number of samples for training.
  std::uint64_t draw_text(std::int64_t tokens) {
    const auto samples = static_cast<std::uint64_t>(draw_.between(20, 120));
    contract_.trial.data =
        std::make_shared<DataSplit>(DataSplit{std::make_shared<RuleSource>(samples, tokens, 0),
                                              std::make_shared<RuleSource>(16, tokens, 1000)});
    return samples;
  }

  void draw_mlp() {
    MlpConfig c;
    c.num_hidden_layers = draw_.between(1, 4);
    c.hidden_size = draw_.between(3, 48);
    c.hidden_act = draw_.one_of({Activation::relu, Activation::gelu, Activation::tanh});
    c.dropout = draw_dropout();
    if (draw_.chance(20)) c.freeze = {"h.0.*"};
    draw_digits();
    contract_.trial.model = [c](std::int64_t vn_size) { return make_mlp(c, vn_size); };
    cut_batch(draw_.between(1, 5));
    text_ << "mlp: hidden " << c.num_hidden_layers << " x " << c.hidden_size << " "
          << to_string(c.hidden_act) << ", dropout " << c.dropout << ", frozen " << c.freeze.size();
  }

  void draw_resnet() {
    ResnetConfig c;
    c.hidden_sizes.clear();
    c.depths.clear();
    text_ << "resnet: stages";
    for (int stages = draw_.between(1, 3); stages > 0; --stages) {
      c.hidden_sizes.push_back(draw_.between(1, 8));
      c.depths.push_back(draw_.between(1, 2));
      text_ << " " << c.hidden_sizes.back() << "x" << c.depths.back();
    }
    c.dropout = draw_dropout();
    if (draw_.chance(20)) c.freeze = {"conv1.*"};
    draw_digits();
    contract_.trial.model = [c](std::int64_t vn_size) { return make_resnet(c, vn_size); };
    cut_batch(draw_.between(2, 4));
    text_ << ", dropout " << c.dropout << ", frozen " << c.freeze.size();
  }

  /// Layers of any widths, in the order of small_cnn().
  void draw_cnn() {
    const double drop = draw_dropout();
    CnnPieces pieces{.channels = draw_.between(1, 4)};
    if (draw_.chance(50)) pieces.height = draw_.between(2, 5);
    CnnConfig c = small_cnn(drop, pieces);
    const std::int64_t stem = draw_.between(1, 8), left = draw_.between(1, 8);
    for (CnnLayerConfig& layer : c.layers) {
      if (layer.name == "conv1" || layer.name == "conv2") layer.out_channels = stem;
      if (layer.name == "left") layer.out_channels = left;
      if (layer.name == "fc1") layer.out_features = draw_.between(1, 16);
    }
    if (draw_.chance(20)) c.freeze = {draw_.one_of({"conv1.*", "left.*", "fc1.*"})};
    draw_digits();
    contract_.trial.model = [c](std::int64_t vn_size) { return make_cnn(c, vn_size); };
    cut_batch(draw_.between(1, 4));
    text_ << "cnn: channels " << stem << " " << left << ", pieces " << pieces.channels << " "
          << pieces.height << ", dropout " << c.layers[7].p << ", frozen "
          << (c.freeze.empty() ? "-" : c.freeze[0]);
  }

  void draw_digits() {
    const bool augment = draw_.chance(50);
    contract_.trial.data = made_up_digits(augment);
    if (augment) text_ << "(augmented) ";
  }

  void drop_evaluation() {
    DataSplit split = *contract_.trial.data;
    split.eval = nullptr;
    contract_.trial.data = std::make_shared<DataSplit>(std::move(split));
    text_ << ", no evaluation";
  }

  std::string train() const {
    const TrainConfig& t = contract_.trial.train;
    std::ostringstream text;
    text << "; " << to_string(t.dtype) << ", seed " << t.seed << ", batch " << t.batch_size
         << ", virtual nodes " << t.virtual_nodes << ", groups " << t.reduction_groups << ", steps "
         << t.max_steps << ", " << to_string(t.optimizer) << " rate " << t.learning_rate
         << " decay " << t.weight_decay << " momentum " << t.momentum << ", clip "
         << t.max_grad_norm << ", " << to_string(t.lr_scheduler_type) << " warmup "
         << t.warmup_ratio << ", evaluated every " << t.eval_steps << " by " << t.eval_batches;
    return text.str();
  }

  Draw draw_;
  Contract contract_;
  std::ostringstream text_;
};

}  // namespace spillway::testing
