#pragma once

#include "core/base/field.h"

/// The fields of adapters, see core/base/field.h. `Config` is LoraConfig, constant or not.
namespace spillway {

template <typename Config, typename Visitor>
void visit_lora(Config& lora, Visitor& v) {
  using enum InContract;
  v.field("r", lora.r, IntRange{1, 1 << 16},
          "Rank: the adapter of a linear layer is two matrices, `lora_A` [r, in] and `lora_B` "
          "[out, r].",
          yes);
  v.field("alpha", lora.alpha, NumberRange{.min = 0, .above_min = true},
          "The output of an adapter is multiplied by `alpha` / `r`.", yes);
  v.field("dropout", lora.dropout, NumberRange{.min = 0, .max = 1, .below_max = true},
          "Probability that an element of an adapter's input is dropped.", yes);
  v.field("target_modules", lora.target_modules, TextList{},
          "The linear layers that get an adapter, by the end of their names: `[q_proj, v_proj]`. "
          "`all-linear`: all but the output layer.",
          yes);
}

}  // namespace spillway
