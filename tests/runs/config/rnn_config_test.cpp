#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/check/bad_input.h"

/// Recurrent networks from the configuration.
namespace spillway::testing {
namespace {

constexpr const char* kText = R"(output_dir: out
devices: [{memory: 16MiB}]
data: {path: text.txt, eval_fraction: 0.2}
model:
  family: rnn
  preset: nmt
  hidden_size: 16
  num_hidden_layers: 1
  max_position_embeddings: 12
  chunk_steps: 4
train: {batch_size: 4, virtual_nodes: 4, max_steps: 1}
)";

/// A replacement in a configuration, and the expected message.
struct BadRnnText {
  const char *from, *to, *message;
};

constexpr BadRnnText kBadTexts[] = {
    {"preset: nmt", "preset: gru",
     "line 6: model.preset: is 'gru', must be none, rnntc, rnnlm or "
     "nmt"},
    {"chunk_steps: 4", "chunk_step: 4",
     "line 10: model.chunk_step: unknown key; did you mean model.chunk_steps?"},
    {"chunk_steps: 4", "chunk_steps: 0", "line 10: model.chunk_steps: is '0', must be an integer"},
    {"embeddings: 12", "embeddings: 13",
     "line 9: model.max_position_embeddings: is 13, must be even with model.preset: nmt"},
    {"chunk_steps: 4", "vocab_size: 255",
     "line 10: model.vocab_size: is 255, must be at least 256 with data.format: bytes"},
    {"chunk_steps: 4", "tie_word_embeddings: maybe",
     "line 10: model.tie_word_embeddings: is 'maybe', must be true or false"},
    {"{path: text.txt, eval_fraction: 0.2}", "{format: digits, path: text.txt}",
     "line 3: data.format: is digits, which model.family rnn does not read; write bytes or "
     "tokens"}};

class RnnInput : public BadInput {
 protected:
  RnnInput() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i % 97) + "\n";
    folder_.write("text.txt", text);
  }
};

TEST_F(RnnInput, IsReportedByFieldAndLine) {
  for (const auto& [from, to, message] : kBadTexts) {
    expect_bad_config(kText, from, to, message);
  }
}

/// Samples have the length of the context, whatever part of it is predicted.
TEST_F(RnnInput, IsPlannedAndTrained) {
  folder_.write("config.yaml", kText);
  for (const char* preset : {"none", "rnntc", "rnnlm", "nmt"}) {
    const std::string change = std::string("model.preset=") + preset;
    EXPECT_EQ(run({"plan", "config.yaml", change.c_str()}), kDone) << log_.str();
    EXPECT_EQ(run({"train", "config.yaml", change.c_str()}), kDone) << log_.str();
    EXPECT_EQ(run({"train", "out/config.yaml", "--overwrite"}), kDone) << log_.str();
    std::filesystem::remove_all("out");
  }
}

}  // namespace
}  // namespace spillway::testing
