#pragma once

#include <vector>

#include "spillway/strategy_config.h"

/// Where and in which order the layers of a job run. No bit of its result depends on that.
/// Source: the strategies of FlexFlow ("Beyond Data and Model Parallelism for Deep Neural
/// Networks", Jia et al., 2019), with reduction groups and pieces as their degrees.
namespace spillway {

/// Layers [begin, end) that move and run together.
struct LayerRange {
  int begin = 0, end = 0;
  bool operator==(const LayerRange&) const = default;
};

/// A consecutive range of reduction groups.
struct GroupRange {
  int begin = 0, end = 0;
  bool operator==(const GroupRange&) const = default;
};

/// The virtual nodes of some reduction groups on one track.
struct Cell {
  GroupRange groups;
  int track = 0;
  bool operator==(const Cell&) const = default;
};

/// Layers through which one op takes a virtual node, and where.
struct Stage {
  LayerRange layers;
  std::vector<Cell> cells;  ///< ascending; together all groups
  /// Stages with the same number stay on the devices of their tracks together. Those of another
  /// number displace them.
  int set = 0;
};

/// A track is a sequence of work on one device at a time. Each stage says which track takes which
/// virtual nodes through it.
///
/// Data parallelism: every stage is on all tracks, each with its part of the groups. A pipeline:
/// every stage is on a track of its own. Operators in parallel: the pieces of a divided layer are
/// stages on different tracks.
struct Strategy {
  int tracks = 1;
  std::vector<Stage> stages;  ///< in order; together all layers
  int chunk = 0;              ///< virtual nodes of a unit; 0: all of a cell
  /// A track takes no further virtual node while it has not finished this many lower ones; 0: it
  /// always does. Fewer need less memory for what lies between forward and backward.
  int window = 0;
  FirstChoice first = FirstChoice::backward;
  GraphChoice graphs = GraphChoice::keep;

  /// Whether each virtual node goes through all stages on one track.
  bool is_data_parallel() const;
  /// By stage: whether its weights stay on its devices between its units, as far as there is room.
  /// Nothing displaces them, and its tracks do not move.
  std::vector<bool> keeps_weights() const;
  /// Whether its only track may change its device between two units. Otherwise a track stays on the
  /// first device that takes a unit of it, for the rest of the program.
  bool roams() const { return tracks == 1 && chunk == 0 && !stays_together(); }
  /// Whether there are several stages, and none displaces another.
  bool stays_together() const;
  /// Whether the virtual nodes of a cell of `groups`, `per_group` each, are several units.
  bool divides(GroupRange groups, int per_group) const {
    return chunk > 0 && chunk < (groups.end - groups.begin) * per_group;
  }
};

/// Every stage on as many tracks as there are ranges of groups. Shards displace each other, or stay
/// on the devices together.
Strategy data_parallel(const std::vector<LayerRange>& shards, const std::vector<GroupRange>& lanes,
                       bool stay = false);
/// The layers of the stages.
std::vector<LayerRange> layers_of(const Strategy& strategy);

}  // namespace spillway
