#include "apps/plan/with_pieces.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/exported_transformer.h"

namespace spillway {
namespace {

using Ways = std::vector<std::vector<std::string>>;

RunConfig rnn_of(std::int64_t hidden_size, std::int64_t positions) {
  RunConfig config;
  config.family = ModelFamily::rnn;
  config.rnn.hidden_size = hidden_size;
  config.rnn.max_position_embeddings = positions;
  return config;
}

TEST(WithPieces, DividesAnRnnByItsVocabularyAloneOrItsStepsToo) {
  RunConfig config = rnn_of(6, 40);
  const std::vector<std::string> vocabulary{"model.pieces.vocabulary=8"};
  EXPECT_EQ(with_pieces(config, 8),
            (Ways{vocabulary,
                  {"model.pieces.vocabulary=8", "model.pieces.hidden=6", "model.chunk_steps=1"}}));
  config.rnn.max_position_embeddings = 2000;
  EXPECT_EQ(with_pieces(config, 8), Ways{vocabulary}) << "too many steps";
}

/// One piece of each layer is an undivided model, whatever the configuration says.
TEST(WithPieces, LeavesAnRnnWhole) {
  RunConfig config = rnn_of(0, 40);
  EXPECT_EQ(with_pieces(config, 1), (Ways{{"model.pieces.vocabulary=1"}}));
  for (const std::int64_t pieces : {0, 4}) {
    config.rnn.pieces.hidden = pieces;
    EXPECT_EQ(with_pieces(config, 1),
              (Ways{{"model.pieces.vocabulary=1", "model.pieces.hidden=1"}}));
  }
}

/// Kinds of which it has no layers are left out.
TEST(WithPieces, DividesWhatAFileHas) {
  const testing::TemporaryFolder folder;
  testing::exported_transformer({.writes = true}).write(folder / "net.spw");
  RunConfig config;
  config.family = ModelFamily::torch;
  config.data_root = folder.path();
  config.torch.path = "net.spw";
  const auto way = [](int attention, int vocabulary, int linear) {
    return std::vector<std::string>{fmt::format("model.pieces.attention={}", attention),
                                    "model.pieces.mlp=1",
                                    fmt::format("model.pieces.vocabulary={}", vocabulary),
                                    fmt::format("model.pieces.linear={}", linear)};
  };
  EXPECT_EQ(with_pieces(config, 4), (Ways{way(4, 4, 1), way(1, 1, 4)}));
  EXPECT_EQ(with_pieces(config, 1), Ways{way(1, 1, 1)});
  config.adapter.emplace();
  EXPECT_EQ(with_pieces(config, 4), Ways{});
}

}  // namespace
}  // namespace spillway
