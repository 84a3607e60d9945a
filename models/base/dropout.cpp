#include "models/base/dropout.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cassert>
#include <cstdint>
#include <vector>

#include "core/device/kernels.h"

namespace spillway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename T>
void drop(const at::Tensor& out, const at::Tensor& in, double p, const RandomKey& key,
          void* stream) {
  kernels::dropout(stream, static_cast<T*>(out.mutable_data_ptr()),
                   static_cast<const T*>(in.const_data_ptr()), static_cast<std::size_t>(in.numel()),
                   static_cast<float>(p), key);
}

at::Tensor apply_mask(const at::Tensor& x, double p, const RandomKey& key, void* stream) {
  const at::Tensor in = x.contiguous();
  at::Tensor out = at::empty_like(in);
  const bool is_bf16 = in.scalar_type() == at::kBFloat16;
  is_bf16 ? drop<BFloat16>(out, in, p, key, stream) : drop<float>(out, in, p, key, stream);
  return out;
}

std::vector<std::int64_t> pack(const RandomKey& key) {
  return {static_cast<std::int64_t>(key.seed), key.step, key.vn, key.stream};
}

RandomKey unpack(const std::vector<std::int64_t>& words) {
  return {.seed = static_cast<std::uint64_t>(words[0]),
          .step = static_cast<std::uint32_t>(words[1]),
          .vn = static_cast<std::uint32_t>(words[2]),
          .stream = static_cast<std::uint32_t>(words[3])};
}

class KeyedDropout : public torch::autograd::Function<KeyedDropout> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double p,
                            const RandomKey& key, void* stream) {
    context->saved_data["p"] = p;
    context->saved_data["key"] = pack(key);
    context->saved_data["stream"] = reinterpret_cast<std::int64_t>(stream);
    return apply_mask(x, p, key, stream);
  }

  /// Linear in its input: the backward is the same mask, and so is the backward of that.
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const RandomKey key = unpack(context->saved_data["key"].toIntVector());
    const auto stream = reinterpret_cast<void*>(context->saved_data["stream"].toInt());
    return {apply(gradients[0], context->saved_data["p"].toDouble(), key, stream), {}, {}, {}};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, const LayerContext& context, std::uint32_t draw) {
  assert(draw < 16);
  if (!context.training || p == 0) return x;
  RandomKey key = context.random;
  key.stream += draw;
  return KeyedDropout::apply(x, p, key, context.stream);
}

}  // namespace spillway
