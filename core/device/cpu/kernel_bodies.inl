// The kernels for one instruction set, in kTable. The including file defines SPILLWAY_TARGET (an
// attribute), kLanes, and on Counters: multiply_low (products of the low halves of 64-bit lanes),
// unpack_low and unpack_high (the even or the odd lanes of two vectors, interleaved).
//
// Every function carries the attribute itself: g++ splits vectors that a target lacks before it
// inlines, and lambdas would not inherit it.

typedef std::uint32_t Words __attribute__((vector_size(8 * kLanes)));
typedef float Floats __attribute__((vector_size(8 * kLanes)));
typedef float HalfFloats __attribute__((vector_size(4 * kLanes)));
typedef double Doubles __attribute__((vector_size(8 * kLanes)));
typedef std::uint16_t HalfWords __attribute__((vector_size(4 * kLanes)));

constexpr std::size_t kWords = 2 * kLanes;  // in a vector

struct PhiloxLanes {
  Counters c0, c1, c2, c3;
};

/// Philox on the low halves of the lanes; whatever is in the high halves never reaches them.
SPILLWAY_TARGET inline void philox_lanes(PhiloxLanes& c, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Counters a = multiply_low(c.c0, 0xD2511F53u), b = multiply_low(c.c2, 0xCD9E8D57u);
    c.c0 = (b >> 32) ^ c.c1 ^ std::uint64_t{k0};
    c.c2 = (a >> 32) ^ c.c3 ^ std::uint64_t{k1};
    c.c1 = b;
    c.c3 = a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

/// Word `low` of a lane and above it word `high`.
SPILLWAY_TARGET inline Counters pair(Counters low, Counters high) {
  return (low & std::uint64_t{0xFFFFFFFFu}) | (high << 32);
}

SPILLWAY_TARGET inline void load(Floats& x, const float* in) { std::memcpy(&x, in, sizeof(x)); }
SPILLWAY_TARGET inline void load(Floats& x, const BFloat16* in) {
  HalfWords bits;
  std::memcpy(&bits, in, sizeof(bits));
  x = (Floats)(__builtin_convertvector(bits, Words) << 16);
}

SPILLWAY_TARGET inline void store(float* out, Floats x) { std::memcpy(out, &x, sizeof(x)); }
SPILLWAY_TARGET inline void store(BFloat16* out, Floats x) {
  const Words all = (Words)x, nan = Words{} + 0x7FC0u;
  const Words nearest = (all + 0x7FFFu + ((all >> 16) & 1u)) >> 16;
  const HalfWords bits =
      __builtin_convertvector(((all & 0x7FFFFFFFu) > 0x7F800000u) ? nan : nearest, HalfWords);
  std::memcpy(out, &bits, sizeof(bits));
}

template <typename T>
SPILLWAY_TARGET inline void drop(T* out, const T* in, Counters words, const Dropout& how) {
  Floats x;
  load(x, in);
  store(out, ((Words)words >= how.threshold) ? x * how.scale : Floats{});
}

template <typename T>
SPILLWAY_TARGET void dropout(T* out, const T* in, std::size_t n, const Dropout& how) {
  // Lane 2k holds block first + k, lane 2k + 1 block first + kLanes / 2 + k: unpacking then leaves
  // the words in the order of the elements.
  Counters offset;
  for (std::size_t k = 0; k < kLanes; ++k) offset[k] = k / 2 + (k % 2) * (kLanes / 2);
  const Counters zero = {};
  const std::size_t whole = n / (2 * kWords) * (2 * kWords);
  for (std::size_t i = 0; i < whole; i += 2 * kWords) {
    PhiloxLanes c{offset + std::uint64_t{i / 4}, zero + std::uint64_t{how.key.vn},
                  zero + std::uint64_t{how.key.stream}, zero + std::uint64_t{how.key.step}};
    philox_lanes(c, how.key.seed);
    const Counters first = pair(c.c0, c.c1), second = pair(c.c2, c.c3);
    drop(out + i, in + i, unpack_low(first, second), how);
    drop(out + i + kWords, in + i + kWords, unpack_high(first, second), how);
  }
  PhiloxBlock block{};
  for (std::size_t i = whole; i < n; ++i) {
    if (i % 4 == 0) {
      block = philox(counter_of(how.key, static_cast<std::uint32_t>(i / 4)), how.key.seed);
    }
    assign(out[i], block[i % 4] >= how.threshold ? value_of(in[i]) * how.scale : 0.0f);
  }
}

template <typename S, typename T>
SPILLWAY_TARGET void add(S* sum, const T* term, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) assign(sum[i], value_of(sum[i]) + value_of(term[i]));
}

SPILLWAY_TARGET void add_rounded(float* sum, const float* term, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) sum[i] = rounded(sum[i]) + rounded(term[i]);
}

SPILLWAY_TARGET void widen(float* out, const BFloat16* in, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = to_float(in[i]);
}

SPILLWAY_TARGET void narrow(BFloat16* out, const float* in, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = to_bfloat16(in[i]);
}

SPILLWAY_TARGET inline void load(HalfFloats& x, const float* in) { std::memcpy(&x, in, sizeof(x)); }
SPILLWAY_TARGET inline void load(HalfFloats& x, const BFloat16* in) {
  for (std::size_t j = 0; j < kLanes; ++j) x[j] = to_float(in[j]);
}

template <typename T>
SPILLWAY_TARGET inline double squared_norm_of_chunk(const T* x, std::size_t n) {
  Doubles sums[8 / kLanes] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t j = 0; j < 8 / kLanes; ++j) {
      HalfFloats input;
      load(input, x + i + j * kLanes);
      const Doubles wide = __builtin_convertvector(input, Doubles);
      sums[j] += wide * wide;
    }
  }
  double lane[8];
  for (std::size_t j = 0; j < 8; ++j) lane[j] = sums[j / kLanes][j % kLanes];
  for (; i < n; ++i) {
    const auto wide = static_cast<double>(value_of(x[i]));
    lane[i % 8] += wide * wide;
  }
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

template <typename T>
SPILLWAY_TARGET double squared_norm(const T* x, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; i += kNormChunk) {
    sum += squared_norm_of_chunk(x + i, n - i < kNormChunk ? n - i : kNormChunk);
  }
  return sum;
}

template <typename T>
SPILLWAY_TARGET void adamw(float* __restrict p, float* __restrict m, float* __restrict v,
                           const T* __restrict g, std::size_t n, const AdamW& hyper) {
  const AdamW h = hyper;
  const float decay = 1.0f - h.learning_rate * h.weight_decay;
  const float rate = h.learning_rate / h.bias_correction1;
  const float rest1 = 1.0f - h.beta1, rest2 = 1.0f - h.beta2;
  for (std::size_t i = 0; i < n; ++i) {
    const float gradient = value_of(g[i]) * h.gradient_scale;
    const float mean = h.beta1 * m[i] + rest1 * gradient;
    const float square = h.beta2 * v[i] + (rest2 * gradient) * gradient;
    const float denominator = std::sqrt(square) / h.bias_correction2_sqrt + h.epsilon;
    m[i] = mean;
    v[i] = square;
    p[i] = p[i] * decay - (rate * mean) / denominator;
  }
}

template <typename T>
SPILLWAY_TARGET void sgd(float* __restrict p, float* __restrict m, const T* __restrict g,
                         std::size_t n, const Sgd& hyper) {
  const Sgd h = hyper;
  for (std::size_t i = 0; i < n; ++i) {
    const float gradient = value_of(g[i]) * h.gradient_scale + h.weight_decay * p[i];
    const float mean = h.momentum * m[i] + gradient;
    m[i] = mean;
    p[i] = p[i] - h.learning_rate * mean;
  }
}

#include "core/device/cpu/normal_bodies.inl"

constexpr KernelTable kTable{dropout<float>,
                             dropout<BFloat16>,
                             add<float, float>,
                             add<float, BFloat16>,
                             add<BFloat16, BFloat16>,
                             add_rounded,
                             widen,
                             narrow,
                             squared_norm<float>,
                             squared_norm<BFloat16>,
                             adamw<float>,
                             adamw<BFloat16>,
                             sgd<float>,
                             sgd<BFloat16>,
                             fill_normal};
