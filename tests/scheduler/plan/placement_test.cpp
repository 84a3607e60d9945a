#include "scheduler/plan/placement.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/support/models/divided_model.h"
#include "tests/support/models/small_model.h"

namespace spillway {
namespace {

using testing::chain;
using testing::divided_chain;
using testing::profile_of;
using Ranges = std::vector<LayerRange>;
using Cells = std::vector<Cell>;

constexpr int kGroups = 4;

TEST(Placement, PutsPartsOfTheBatchOnTracks) {
  const Strategy strategy = placed({{{{"*"}, {0, 1}}}}, chain(4), kGroups);
  EXPECT_EQ(strategy.tracks, 2);
  EXPECT_EQ(layers_of(strategy), (Ranges{{0, 4}}));
  EXPECT_EQ(strategy.stages[0].cells, (Cells{{{0, 2}, 0}, {{2, 4}, 1}}));
  EXPECT_TRUE(strategy.is_data_parallel());
}

TEST(Placement, MakesAPipeline) {
  const Strategy strategy =
      placed({{{{"*"}, {0}}, {{"layer.2", "layer.3"}, {1}}}}, chain(4), kGroups);
  EXPECT_EQ(layers_of(strategy), (Ranges{{0, 2}, {2, 4}}));
  EXPECT_EQ(strategy.stages[1].cells, (Cells{{{0, 4}, 1}}));
  EXPECT_FALSE(strategy.is_data_parallel());
}

/// norm, mlp/0, mlp/1, mlp/2, mlp/3, add, loss. The norm ends its stage: other tracks wait for it.
TEST(Placement, PutsPiecesOnTracks) {
  const Strategy strategy = placed({{{{"*.mlp"}, {0, 1}, 2}}}, divided_chain(1, 4), kGroups);
  EXPECT_EQ(layers_of(strategy), (Ranges{{0, 1}, {1, 3}, {3, 5}, {5, 7}}));
  EXPECT_EQ(strategy.stages[1].cells, (Cells{{{0, 4}, 0}}));
  EXPECT_EQ(strategy.stages[2].cells, (Cells{{{0, 4}, 1}}));
}

TEST(Placement, DividesBatchAndPieces) {
  const ModelSpec model = divided_chain(1, 4);
  const Strategy strategy = placed({{{{"h.0.mlp"}, {3, 2, 1, 0}, 2}}}, model, kGroups);
  EXPECT_EQ(strategy.tracks, 4);
  EXPECT_EQ(strategy.stages[1].cells, (Cells{{{0, 2}, 3}, {{2, 4}, 1}}));
  EXPECT_EQ(strategy.stages[2].cells, (Cells{{{0, 2}, 2}, {{2, 4}, 0}}));
  EXPECT_EQ(letters_of(strategy, 1, model), (std::vector<std::string>{"", "SP", "", "SP"}));
  EXPECT_EQ(letters_of(strategy, 0, model), (std::vector<std::string>{"O", "", "", ""}));
}

/// Pieces by rows have no parts of weights. If one track has all pieces, it has the whole.
TEST(Placement, ShowsRows) {
  ModelSpec model = divided_chain(1, 4);
  for (ParamSpec& param : model.params) param.stored = {};
  Strategy strategy = placed({{{{"*.mlp"}, {0, 1}, 2}}}, model, kGroups);
  EXPECT_EQ(letters_of(strategy, 1, model), (std::vector<std::string>{"A", ""}));
  EXPECT_EQ(letters_of(strategy, 2, model), (std::vector<std::string>{"", "A"}));
  strategy = placed({{{{"*.mlp"}, {1}}}}, model, kGroups);
  EXPECT_EQ(letters_of(strategy, 1, model), (std::vector<std::string>{"", "O"}));
}

/// Pieces that read what the one before them makes, as those of a normalization do, wait for no
/// other piece: factors, mlp/0, mlp/1, add, loss.
TEST(Placement, EndsAStageBehindWhatTheNextLayerReads) {
  ModelSpec model = divided_chain(1, 2);
  model.layers[0].name = "h.0.mlp/factors";
  model.layers[0].pieces = 2;
  const Strategy strategy = placed({{{{"*.mlp"}, {0, 1}, 2}}}, model, kGroups);
  EXPECT_EQ(layers_of(strategy), (Ranges{{0, 1}, {1, 2}, {2, 3}, {3, 5}}));
}

/// So that one track does not add the terms of all virtual nodes.
TEST(Placement, DividesOtherLayersByTheBatch) {
  const ModelSpec model = divided_chain(1, 4);
  const auto cells_of_sum = [&](const LayerPlacement& placement, int groups) {
    return placed({{placement}}, model, groups).stages.back().cells;
  };
  EXPECT_EQ(cells_of_sum({{"*"}, {0, 1, 2, 3}, 4}, 4),
            (Cells{{{0, 1}, 0}, {{1, 2}, 1}, {{2, 3}, 2}, {{3, 4}, 3}}));
  EXPECT_EQ(cells_of_sum({{"*"}, {0, 1, 2, 3}, 4}, 2), (Cells{{{0, 1}, 0}, {{1, 2}, 1}}));
  EXPECT_EQ(cells_of_sum({{"*"}, {3, 2, 1, 0}, 2}, 4),
            (Cells{{{0, 1}, 3}, {{1, 2}, 2}, {{2, 3}, 1}, {{3, 4}, 0}}));
}

TEST(Placement, LetsLaterLinesWin) {
  const Strategy strategy = placed({{{{"*"}, {1}}, {{"layer.?"}, {0}}}}, chain(3), kGroups);
  EXPECT_EQ(layers_of(strategy), (Ranges{{0, 3}}));
  EXPECT_EQ(strategy.stages[0].cells[0].track, 0);
}

/// layer.2 has more weights than a stage may have, and layer.3 has none.
TEST(Placement, EndsStagesThatHaveTheirWeights) {
  ModelSpec model = chain(6);
  const Bytes each = model.params[0].tensor.bytes();
  model.params[2].tensor.dims[0].size *= 3;
  model.layers[3].params.clear();
  const auto stages = [&](Bytes most) {
    return layers_of(placed({.place = {{{"*"}, {0}}}, .stage_weights = most}, model, 1));
  };
  EXPECT_EQ(stages(2 * each), (Ranges{{0, 2}, {2, 4}, {4, 6}}));
  EXPECT_EQ(stages(4 * each), (Ranges{{0, 2}, {2, 5}, {5, 6}}));
  EXPECT_EQ(stages(1), (Ranges{{0, 1}, {1, 2}, {2, 4}, {4, 5}, {5, 6}}));
  EXPECT_EQ(stages(0), (Ranges{{0, 6}}));
}

TEST(Placement, RoamsUnlessShardsStay) {
  const Ranges one{{0, 4}}, two{{0, 2}, {2, 4}};
  const std::vector<GroupRange> lane{{0, 4}}, lanes{{0, 2}, {2, 4}};
  EXPECT_TRUE(data_parallel(one, lane).roams());
  EXPECT_TRUE(data_parallel(two, lane).roams());
  EXPECT_TRUE(data_parallel(one, lane, /*stay=*/true).roams()) << "its only unit goes anywhere";
  const Strategy staying = data_parallel(two, lane, /*stay=*/true);
  EXPECT_FALSE(staying.roams());
  EXPECT_EQ(staying.keeps_weights(), (std::vector<bool>{true, true}));
  EXPECT_EQ(data_parallel(two, lane).keeps_weights(), (std::vector<bool>{false, false}));
  EXPECT_FALSE(data_parallel(two, lanes).roams());
}

TEST(Placement, DividesStagesThatDoNotFit) {
  const ModelSpec model = chain(6);
  const Profile profile = profile_of(model);
  Strategy strategy = placed({{{{"layer.4", "layer.5"}, {1}}}}, model, 1);
  const NeedTable needs(model, profile, JobShape{}, strategy);
  const auto whole = [&](LayerRange layers) {
    return range_need(needs, layers).largest().total(needs.split);
  };
  divide_to_fit(strategy, needs, whole({0, 4}));
  EXPECT_EQ(layers_of(strategy), (Ranges{{0, 4}, {4, 6}}));
  divide_to_fit(strategy, needs, whole({0, 3}));
  EXPECT_EQ(layers_of(strategy), (Ranges{{0, 3}, {3, 4}, {4, 6}}));
  EXPECT_EQ(strategy.stages[1].cells[0].track, 0);
  divide_to_fit(strategy, needs, smallest_budget(needs));
  EXPECT_EQ(strategy.stages.size(), 6u);
}

std::string problem_of(const StrategyConfig& config) {
  try {
    placed(config, chain(3), kGroups);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Placement, RefusesWhatItCannotPlace) {
  EXPECT_EQ(
      problem_of({{{{"*"}, {0}}, {{"h.0"}, {0}}}}),
      "train.strategy.place[1].layers: is h.0, which matches no layer of the model; its layers "
      "are layer.0, layer.1, layer.2");
  EXPECT_EQ(problem_of({{{{"*"}, {0, 1, 2, 3, 4}}}}),
            "train.strategy.place[0].tracks: divides the batch by 5, but train.reduction_groups is "
            "4; use fewer tracks");
  EXPECT_EQ(problem_of({{{{"*"}, {0, 1, 2}, 2}}}),
            "train.strategy.place[0].pieces: is 2, must divide the number of tracks, which is 3");
  EXPECT_EQ(problem_of({{{{"*"}, {-1}}}}),
            "train.strategy.place[0].tracks: has -1, must be from 0 to 1023");
  EXPECT_EQ(problem_of({{{{}, {0}}}}),
            "train.strategy.place[0].layers: is empty; name layers, such as h.*, or * for all");
  EXPECT_EQ(problem_of({.place = {{{"*"}, {0}}}, .num_layers = 4}),
            "train.strategy.num_layers: is 4, but the model has 3 layers and pieces: the strategy "
            "is for another model; search again (spillway plan --search)");
  EXPECT_EQ(problem_of({.place = {{{"*"}, {0}}}, .num_layers = 3}), "");
  EXPECT_EQ(problem_of({.chunk = -1}), "train.strategy.chunk: is -1, must be 0 or more");
}

}  // namespace
}  // namespace spillway
