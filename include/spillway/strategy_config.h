#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "spillway/choices.h"
#include "spillway/units.h"

namespace spillway {

/// Where some layers of a model are computed.
struct LayerPlacement {
  /// Patterns of layer names, as those of a shell for files. A pattern that matches a divided layer
  /// matches all its pieces; one of them is `h.0.mlp/1`.
  std::vector<std::string> layers;
  /// By range of reduction groups, then by range of pieces. Ranges are as equal as possible.
  std::vector<int> tracks{0};
  /// Ranges of pieces; divides the number of tracks. A layer that is not divided, such as one that
  /// adds what pieces make, is divided by the batch over them.
  int pieces = 1;
  /// Layers of a track with the same number are on its device together; those of another number
  /// displace them.
  int set = 0;
};

/// What a track does first if it could do either.
enum class FirstChoice : std::uint8_t {
  backward,  ///< which frees memory soon (1F1B)
  forward    ///< which lets other tracks begin soon (GPipe)
};
template <>
inline constexpr std::array kNames<FirstChoice>{"backward", "forward"};  ///< names

/// What becomes of the autograd graph of a forward whose backward comes later.
enum class GraphChoice : std::uint8_t {
  keep,      ///< it stays while there is room and the weights stay; otherwise as `recompute`
  recompute  ///< it is freed, and backward computes the layers again
};
template <>
inline constexpr std::array kNames<GraphChoice>{"keep", "recompute"};  ///< names

/// On which tracks the layers of a trial are computed, and in which order. A track is a sequence of
/// work on one device at a time. The result of the trial is the same for every strategy.
struct StrategyConfig {
  std::vector<LayerPlacement> place;          ///< later ones win; other layers are on track 0
  FirstChoice first = FirstChoice::backward;  ///< see FirstChoice
  int chunk = 1;   ///< virtual nodes that a track takes through its layers at a time; 0: all
  int window = 0;  ///< the most virtual nodes that a track may have begun and not finished; 0: any
  GraphChoice graphs = GraphChoice::keep;  ///< see GraphChoice
  /// Consecutive layers of a track run as one operation, a stage, which begins when all their
  /// weights have come and sends their gradient sums at its end. A stage of several layers with
  /// weights has at most this many bytes of weights, where a weight counts as often as layers use
  /// it; 0: any number. With short stages, copies go on while other stages compute.
  Bytes stage_weights = 0;
  /// Layers of the model that it is for, pieces included; a trial with another model is refused. 0:
  /// any model.
  int num_layers = 0;

  /// The highest number of a track, plus 1.
  int num_tracks() const;
  /// Throws ConfigError that names the field (`train.strategy.place[1].tracks`), the value, the
  /// remedy.
  void validate() const;
};

}  // namespace spillway
