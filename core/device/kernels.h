#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/bfloat16.h"
#include "spillway/philox.h"

/// Arithmetic on raw memory for which LibTorch has no exact form, implemented for each device kind:
/// `core/device/cpu/kernels.cpp`, `core/device/cuda/kernels.cu`. Every dispatch path gives the same
/// bits: no contraction, no reassociation, fixed lanes for every sum. Ranges may start at any
/// element and do not overlap unless documented. A draw has at most 2^34 elements.
namespace spillway::kernels {

/// out[i] = keep ? in[i] * float(1 / (1 - p)) : 0 for i in [0, n). An element is kept where its
/// word (see RandomKey) >= round(p * 2^32), so the mask is a pure function of key and i. The
/// backward is the same call on the gradient. `in` may equal `out`. 0 <= p < 1. For bf16 the mask
/// is the same, and the product is rounded once.
void dropout(float* out, const float* in, std::size_t n, float p, const RandomKey& key);
void dropout(BFloat16* out, const BFloat16* in, std::size_t n, float p, const RandomKey& key);

/// sum[i] += term[i].
void add(float* sum, const float* term, std::size_t n);
void add(float* sum, const BFloat16* term, std::size_t n);
/// Rounded to the nearest after the addition in float.
void add(BFloat16* sum, const BFloat16* term, std::size_t n);
/// sum[i] = r(sum[i]) + r(term[i]), where r rounds to the nearest bf16. The result is not rounded.
void add_rounded(float* sum, const float* term, std::size_t n);

/// out[i] = in[i], exactly.
void widen(float* out, const BFloat16* in, std::size_t n);
/// out[i] = in[i] rounded to the nearest (core/base/bfloat16.h).
void narrow(BFloat16* out, const float* in, std::size_t n);

/// Sum of x[i]^2 in double: chunks of kNormChunk elements, 8 interleaved lanes inside a chunk
/// (lane j takes elements i with i % 8 == j), lanes folded as ((0+1)+(2+3))+((4+5)+(6+7)), chunks
/// left to right.
double squared_norm(const float* x, std::size_t n);
double squared_norm(const BFloat16* x, std::size_t n);
inline constexpr std::size_t kNormChunk = 4096;

/// x[i] = stddev * normal(key, first + i): Box-Muller on the words of a counter, (0, 1) and (2, 3),
/// each giving a cosine and a sine. Only IEEE basic operations: the same bits on every machine.
void fill_normal(float* x, std::size_t n, double stddev, const RandomKey& key,
                 std::size_t first = 0);

/// Queue::stream(): the cudaStream_t of a queue that computes on a GPU; null on CPU.
using Stream = void*;

// The same for work enqueued on a queue. On CPU they run at once. On a GPU they are launched on the
// stream, with all memory on the GPU unless documented; bits are equal except inside NaNs. They
// throw CudaError if CUDA refuses the launch.

/// One side may be page-locked host memory.
void copy(Stream stream, void* to, const void* from, std::size_t bytes);
/// Zeros.
void clear(Stream stream, void* to, std::size_t bytes);
void dropout(Stream stream, float* out, const float* in, std::size_t n, float p,
             const RandomKey& key);
void dropout(Stream stream, BFloat16* out, const BFloat16* in, std::size_t n, float p,
             const RandomKey& key);
void add(Stream stream, float* sum, const float* term, std::size_t n);
void add(Stream stream, float* sum, const BFloat16* term, std::size_t n);
void add_rounded(Stream stream, float* sum, const float* term, std::size_t n);
void widen(Stream stream, float* out, const BFloat16* in, std::size_t n);
void narrow(Stream stream, BFloat16* out, const float* in, std::size_t n);
/// Writes to `sum`. A GPU uses `chunks`, room for num_norm_chunks(n) numbers. Both lie on the
/// stream's device.
void squared_norm(Stream stream, double* sum, double* chunks, const float* x, std::size_t n);
void squared_norm(Stream stream, double* sum, double* chunks, const BFloat16* x, std::size_t n);
constexpr std::size_t num_norm_chunks(std::size_t n) { return (n + kNormChunk - 1) / kNormChunk; }

/// Decoupled weight decay Adam. Bias corrections come from the caller, in double.
/// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR'19.
struct AdamW {
  float learning_rate = 0;
  float beta1 = 0.9f, beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;           ///< already 0 for parameters without decay
  float bias_correction1 = 1;       ///< 1 - beta1^t
  float bias_correction2_sqrt = 1;  ///< sqrt(1 - beta2^t)
  float gradient_scale = 1;         ///< clipping coefficient / total weight of the batch
};
/// One fused pass, with g' = gradient_scale * g:
///   m = beta1 * m + (1 - beta1) * g'
///   v = beta2 * v + ((1 - beta2) * g') * g'
///   p = p * (1 - learning_rate * weight_decay) - (learning_rate / bias_correction1 * m) /
///       (sqrt(v) / bias_correction2_sqrt + epsilon)
/// Every operation is rounded to float; factors without an index are computed once. Cutting a
/// range in two anywhere gives the same bits.
void adamw(float* p, float* m, float* v, const float* g, std::size_t n, const AdamW& hyper);
void adamw(float* p, float* m, float* v, const BFloat16* g, std::size_t n, const AdamW& hyper);

/// Stochastic gradient descent with momentum, without dampening, as PyTorch's SGD.
struct Sgd {
  float learning_rate = 0;
  float momentum = 0.9f;
  float weight_decay = 0;    ///< added to the gradient; already 0 for parameters without decay
  float gradient_scale = 1;  ///< as AdamW's
};
/// One fused pass, every operation rounded to float; a cut gives the same bits:
///   m = momentum * m + (gradient_scale * g + weight_decay * p)
///   p = p - learning_rate * m
void sgd(float* p, float* m, const float* g, std::size_t n, const Sgd& hyper);
void sgd(float* p, float* m, const BFloat16* g, std::size_t n, const Sgd& hyper);

/// The instruction set that the kernels dispatch to. Every level gives the same bits.
enum class Isa : std::uint8_t { baseline, avx2, avx512 };
Isa active_isa();
/// For tests: caps the dispatch. Returns the level now in use (never above what the CPU has).
Isa limit_isa(Isa highest);

}  // namespace spillway::kernels
