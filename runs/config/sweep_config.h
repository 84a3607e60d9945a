#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runs/config/yaml_node.h"
#include "runs/config/yaml_reader.h"
#include "spillway/session_config.h"

/// The section `sweep` as values; names and meanings follow Weights & Biases.
namespace spillway {

inline constexpr std::size_t kMaxTrials = 10'000;

enum class SweepMethod : std::uint8_t { grid, random };
template <>
inline constexpr std::array kNames<SweepMethod>{"grid", "random"};

/// Trials `number`, `number` + `of`, ... of a sweep, from 1.
struct SweepShare {
  int number = 1, of = 1;
};
/// Of a text such as "2/4"; nothing if it is none.
std::optional<SweepShare> parse_share(const std::string& text);

/// Which trial is the best.
struct MetricConfig {
  MetricKind name = MetricKind::eval_loss;
  MetricGoal goal = MetricGoal::minimize;
};

/// How the values of a swept key are spread.
struct Distribution {
  enum class Shape : std::uint8_t {
    constant,
    categorical,
    int_uniform,
    uniform,
    log_uniform,      ///< the logarithm is uniform
    inv_log_uniform,  ///< the logarithm of the inverse is uniform
    normal,
    log_normal,  ///< the logarithm is normal
  };
  std::string_view name = "categorical";
  Shape shape = Shape::categorical;
  bool quantized = false;  ///< rounded to multiples of q

  bool is_bounded() const {
    return shape == Shape::int_uniform || shape == Shape::uniform || is_log_uniform();
  }
  bool is_log_uniform() const {
    return shape == Shape::log_uniform || shape == Shape::inv_log_uniform;
  }
  bool is_normal() const { return shape == Shape::normal || shape == Shape::log_normal; }
};

inline constexpr std::array<Distribution, 12> kDistributions{{
    {"constant", Distribution::Shape::constant},
    {"categorical", Distribution::Shape::categorical},
    {"int_uniform", Distribution::Shape::int_uniform},
    {"uniform", Distribution::Shape::uniform},
    {"q_uniform", Distribution::Shape::uniform, true},
    {"log_uniform_values", Distribution::Shape::log_uniform},
    {"q_log_uniform_values", Distribution::Shape::log_uniform, true},
    {"inv_log_uniform_values", Distribution::Shape::inv_log_uniform},
    {"normal", Distribution::Shape::normal},
    {"q_normal", Distribution::Shape::normal, true},
    {"log_normal", Distribution::Shape::log_normal},
    {"q_log_normal", Distribution::Shape::log_normal, true},
}};

/// A key of the configuration and the values it takes.
struct SweepParameter {
  /// What the document has beside the sweep where the values are put.
  struct Base {
    std::string key;
    std::optional<YamlNode> node;  ///< none: it has nothing there
  };

  std::string key;
  int line = 0;
  Distribution distribution;
  std::vector<YamlNode> values;       ///< categorical; constant: one
  std::vector<double> probabilities;  ///< by value; empty: all the same
  double min = 0, max = 1;            ///< of bounded ones, both included
  double mu = 0, sigma = 1;           ///< of normal ones
  double q = 1;                       ///< of quantized ones
  std::optional<Base> base;           ///< none: not looked up
};

struct SweepConfig {
  SweepMethod method = SweepMethod::grid;
  std::int64_t run_cap = 0;   ///< the most trials; 0: no cap, for grids only
  std::uint64_t seed = 0;     ///< of random draws; the run's seed unless given
  std::string share = "1/1";  ///< see SweepShare
  MetricConfig metric;
  int line = 0;                            ///< of `parameters`
  std::vector<SweepParameter> parameters;  ///< in file order
  std::vector<YamlNode> trials;            ///< values by key of each trial beside those
};

/// `config.seed` has its default. Problems go into the findings of `schema`.
void read_sweep(YamlReader& sweep, YamlSchema& schema, SweepConfig& config,
                std::optional<EarlyTerminate>& early_terminate);

}  // namespace spillway
