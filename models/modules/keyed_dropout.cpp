#include "models/modules/keyed_dropout.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/feature_dropout.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "models/base/dropout.h"
#include "spillway/error.h"

namespace spillway {
namespace {

/// Operators look here first while the key is in use on a thread. LibTorch 2.11 registers nothing
/// for it: it belongs to a device that LibTorch no longer supports.
constexpr c10::DispatchKey kIntercept = c10::DispatchKey::AutocastIPU;
constexpr std::uint32_t kMaxDraws = 16;  // of a layer, see LayerContext::random

thread_local KeyedDropout* innermost = nullptr;

/// Keys of this kind are excluded unless they are in use.
void intercept(bool in_use) {
  c10::impl::tls_set_dispatch_key_excluded(kIntercept, !in_use);
  c10::impl::tls_set_dispatch_key_included(kIntercept, in_use);
}

at::Tensor keyed_dropout(const at::Tensor& x, double p, bool train) {
  KeyedDropout* const keyed = KeyedDropout::current();
  const c10::impl::ExcludeDispatchKeyGuard passed(kIntercept);
  if (keyed == nullptr) return at::dropout(x, p, train);
  return train ? keyed->draw(x, p) : x;
}

/// Whole channels: [B, C, ...] with one draw for each [B, C].
at::Tensor keyed_feature_dropout(const at::Tensor& x, double p, bool train) {
  KeyedDropout* const keyed = KeyedDropout::current();
  const c10::impl::ExcludeDispatchKeyGuard passed(kIntercept);
  if (keyed == nullptr) return at::feature_dropout(x, p, train);
  if (!train) return x;
  if (x.dim() < 2) throw Error("feature dropout needs an input of at least two dimensions");
  std::vector<std::int64_t> channels(static_cast<std::size_t>(x.dim()), 1);
  channels[0] = x.size(0);
  channels[1] = x.size(1);
  return at::mul(x, keyed->draw(at::ones(channels, x.options().requires_grad(false)), p));
}

TORCH_LIBRARY_IMPL(_, AutocastIPU, library) {
  library.fallback(torch::CppFunction::makeFallthrough());  // all other operators
}

TORCH_LIBRARY_IMPL(aten, AutocastIPU, library) {
  library.impl("dropout", &keyed_dropout);
  library.impl("feature_dropout", &keyed_feature_dropout);
}

}  // namespace

KeyedDropout::KeyedDropout(const LayerContext& context)
    : context_(context), outer_(std::exchange(innermost, this)) {
  intercept(true);
}

KeyedDropout::~KeyedDropout() {
  innermost = outer_;
  intercept(outer_ != nullptr);
}

KeyedDropout* KeyedDropout::current() { return innermost; }

at::Tensor KeyedDropout::draw(const at::Tensor& x, double p) {
  if (!x.is_floating_point()) throw Error("dropout needs floating-point numbers");
  if (next_ == kMaxDraws) {
    throw Error(fmt::format("dropout is called more than {} times; split the module", kMaxDraws));
  }
  const std::uint32_t draw = next_++;
  if (static_cast<float>(p) < 1) return dropout(x, p, context_, draw);
  return context_.training ? at::mul(x, 0) : x;
}

}  // namespace spillway
