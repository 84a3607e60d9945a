#pragma once

#include <cstdint>

#include "spillway/data_source.h"

namespace spillway::testing {

/// Rows of 64 made-up pixels and a label computed from them.
class MadeUpDigits final : public DataSource {
 public:
  std::uint64_t num_samples() const override { return 300; }
  std::int64_t sample_elements() const override { return 65; }
  void read(std::uint64_t index, std::span<std::byte> row) const override {
    const auto out = values_of<std::int64_t>(row);
    for (std::uint64_t i = 0; i < 64; ++i) {
      const std::uint64_t bits = (index * 64 + i + 1) * 0x9E3779B97F4A7C15u;
      out[i] = static_cast<std::int64_t>((bits >> 40) % 17);
    }
    out[64] = (out[9] + out[27]) % 10;
  }
};

}  // namespace spillway::testing
