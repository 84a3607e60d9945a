#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "spillway/model_factory.h"

namespace spillway {

/// Low-rank adapters (LoRA) of a model; names, arithmetic and initial values follow PEFT.
struct LoraConfig {
  std::int64_t r = 8;  ///< rank: a linear layer gets two matrices, lora_A [r, in], lora_B [out, r]
  double alpha = 8;    ///< the adapter's output is multiplied by alpha / r
  double dropout = 0;  ///< probability, of the adapter's input
  /// The linear layers that get an adapter: the last part of a module's name (`q_proj`) or more of
  /// it (`0.self_attn.q_proj`), or `all-linear` alone, for all but the output layer.
  std::vector<std::string> target_modules;
  auto operator<=>(const LoraConfig&) const = default;
};

/// Trains an adapter of the model in a file (spillway/exported.h) and nothing else: its parameters
/// keep their names and values, have no gradients and no optimizer state. The initial values of an
/// adapter are a function of the seed. With the same initial values, losses are those of the model
/// after PEFT's `get_peft_model`, to the last bit.
///
/// Throws like exported_factory(), and ConfigError (`adapter`, `adapter.r`, ...) if the model has
/// no such linear layers, has an adapter already, or if a value is out of range.
ModelFactory adapted_factory(const std::filesystem::path& file, const LoraConfig& adapter);

}  // namespace spillway
