#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "scheduler/search/strategy_search.h"

namespace spillway {

/// Random numbers that are the same everywhere.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : words_(seed) {}
  /// Below `bound`, which is at least 1.
  std::size_t below(std::size_t bound) { return words_() % bound; }
  /// In [0, 1).
  double unit() { return static_cast<double>(words_() >> 11) * 0x1p-53; }
  template <typename Values>
  auto any_of(const Values& values) {
    return values[below(values.size())];
  }

 private:
  std::mt19937_64 words_;
};

/// The changes of drafts that a search tries: any of them at random, or all of a kind.
class Moves {
 public:
  /// Both outlive it.
  Moves(const SearchSpace& space, Draws& draws);

  /// Another draft, or the same.
  Draft change(Draft draft);
  /// All grids of consecutive tracks that begin at a multiple of their number.
  std::vector<Grid> all_grids() const;
  /// Layers that change together: each layer, all of a kind, and all of a block.
  std::vector<std::vector<std::size_t>> all_groups() const;
  /// The draft with another chunk, window, first choice or length of stages; if memory matters,
  /// with other choices of what stays on devices.
  std::vector<Draft> all_orders(const Draft& draft) const;
  /// The draft with stages of any length and with ever shorter ones.
  std::vector<Draft> all_stages(const Draft& draft) const;
  /// From now on, memory matters.
  void save_memory() { saves_memory_ = true; }

 private:
  /// Numbers of a grid: its tracks, and its ranges of pieces.
  struct Shape {
    int tracks = 1, pieces = 1;
  };

  Grid any_grid();
  std::vector<std::size_t> any_group(std::size_t kind);
  std::size_t begin_of_block(std::size_t layer) const;
  std::size_t end_of_block(std::size_t layer) const;
  void copy_a_block(Draft& draft);
  void swap_devices(Draft& draft);

  const SearchSpace& space_;
  Draws& draws_;
  std::vector<Shape> shapes_;
  Bytes weights_ = 0;  // of all layers
  bool saves_memory_ = false;
};

}  // namespace spillway
