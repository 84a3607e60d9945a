#pragma once

#include <cstdint>

#include "spillway/model.h"

namespace spillway {

/// While it lives, LibTorch's dropout and feature dropout on this thread draw by the key of a
/// layer (models/base/dropout.h), numbered in the order of the calls; outside training they do
/// nothing. All other random numbers still come from LibTorch's generators.
class KeyedDropout {
 public:
  /// `context` must outlive it.
  explicit KeyedDropout(const LayerContext& context);
  ~KeyedDropout();
  KeyedDropout(const KeyedDropout&) = delete;
  KeyedDropout& operator=(const KeyedDropout&) = delete;

  /// The innermost one of this thread; null: none.
  static KeyedDropout* current();
  /// The element is zero with probability `p`, 0 <= p <= 1. Throws Error at the 17th call.
  at::Tensor draw(const at::Tensor& x, double p);

 private:
  const LayerContext& context_;
  KeyedDropout* const outer_;
  std::uint32_t next_ = 0;
};

}  // namespace spillway
