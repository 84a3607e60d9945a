#include "core/device/kernels.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <type_traits>

#include "core/device/cpu/kernel_table.h"
#include "core/device/cuda/cuda_error.h"

// Compiled without contraction (core/CMakeLists.txt): every operation is rounded as on the CPU.
namespace spillway::kernels {
namespace {

constexpr unsigned kThreads = 256;  // of a block
constexpr unsigned kElementsPerThread = 4;

/// Number of blocks for `threads` threads, at least 1 (an empty launch is an error).
unsigned blocks_for(std::size_t threads) {
  const std::size_t blocks = (threads + kThreads - 1) / kThreads;
  assert(blocks <= 0x7FFFFFFFu);
  return static_cast<unsigned>(std::max<std::size_t>(blocks, 1));
}

cudaStream_t cuda(Stream stream) { return static_cast<cudaStream_t>(stream); }

/// Like kernel<<<blocks, kThreads, 0, stream>>>(arguments...), but standard C++.
template <typename... P>
void launch(Stream stream, unsigned blocks, void (*kernel)(P...),
            std::type_identity_t<P>... arguments) {
  void* addresses[] = {&arguments...};
  require(cudaLaunchKernel(kernel, dim3(blocks), dim3(kThreads), addresses, 0, cuda(stream)),
          "cudaLaunchKernel");
}

// One thread's share.

constexpr std::size_t kNormLanes = 8;

/// Dropout of the four elements that share one counter.
template <typename T>
constexpr void drop_block(T* out, const T* in, std::size_t n, std::size_t block,
                          const detail::Dropout& how) {
  const PhiloxBlock words =
      philox(detail::counter_of(how.key, static_cast<std::uint32_t>(block)), how.key.seed);
  for (std::size_t j = 0; j < 4 && 4 * block + j < n; ++j) {
    const std::size_t i = 4 * block + j;
    detail::assign(out[i], words[j] >= how.threshold ? detail::value_of(in[i]) * how.scale : 0.0f);
  }
}

// Operations on one element of a range and the corresponding one of another.
struct Convert {
  template <typename Out, typename In>
  constexpr void operator()(Out& out, In in) const {
    detail::assign(out, detail::value_of(in));
  }
};
struct Add {
  template <typename In>
  constexpr void operator()(float& sum, In term) const {
    sum = sum + detail::value_of(term);
  }
};
struct AddRounded {
  constexpr void operator()(float& sum, float term) const {
    sum = detail::rounded(sum) + detail::rounded(term);
  }
};

/// The sum of one lane of a chunk of n elements.
template <typename T>
constexpr double norm_lane(const T* chunk, std::size_t n, std::size_t lane) {
  double sum = 0;
  for (std::size_t i = lane; i < n; i += kNormLanes) {
    const auto wide = static_cast<double>(detail::value_of(chunk[i]));
    sum += wide * wide;
  }
  return sum;
}

/// Elements of chunk number `chunk` of x[0, n); none past the last.
constexpr std::size_t elements_of_chunk(std::size_t n, std::size_t chunk) {
  const std::size_t begin = chunk * kNormChunk;
  if (begin >= n) return 0;
  return n - begin < kNormChunk ? n - begin : kNormChunk;
}

template <typename T>
__global__ void drop_all(T* out, const T* in, std::size_t n, detail::Dropout how) {
  const std::size_t block = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (4 * block < n) drop_block(out, in, n, block, how);
}

template <typename Change, typename Out, typename In>
__global__ void change_all(Out* out, const In* in, std::size_t n) {
  const std::size_t begin = std::size_t{blockIdx.x} * kThreads * kElementsPerThread + threadIdx.x;
  for (unsigned k = 0; k < kElementsPerThread; ++k) {
    const std::size_t i = begin + k * kThreads;
    if (i < n) Change()(out[i], in[i]);
  }
}

/// Eight threads per chunk, one per lane: together they read whole sectors of memory.
template <typename T>
__global__ void norm_of_chunks(double* chunks, const T* x, std::size_t n) {
  const std::size_t thread = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::size_t chunk = thread / kNormLanes, lane = thread % kNormLanes;
  const std::size_t elements = elements_of_chunk(n, chunk);
  double sum = norm_lane(x + chunk * kNormChunk, elements, lane);
  // ((0+1)+(2+3))+((4+5)+(6+7)): a sum of two has the same bits in either order.
  for (int apart = 1; apart < static_cast<int>(kNormLanes); apart *= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
  }
  if (lane == 0 && elements > 0) chunks[chunk] = sum;
}

/// One block: all of its threads load, the first adds from the left.
__global__ void fold_chunks(double* sum, const double* chunks, std::size_t num_chunks) {
  __shared__ double fetched[kThreads];
  double total = 0;
  for (std::size_t begin = 0; begin < num_chunks; begin += kThreads) {
    const std::size_t left = num_chunks - begin, here = left < kThreads ? left : kThreads;
    if (threadIdx.x < here) fetched[threadIdx.x] = chunks[begin + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      for (std::size_t i = 0; i < here; ++i) total += fetched[i];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *sum = total;
}

}  // namespace

void copy(Stream stream, void* to, const void* from, std::size_t bytes) {
  if (!stream) {
    std::memcpy(to, from, bytes);
  } else if (bytes > 0) {
    require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda(stream)), "cudaMemcpyAsync");
  }
}

void clear(Stream stream, void* to, std::size_t bytes) {
  if (!stream) {
    std::memset(to, 0, bytes);
  } else if (bytes > 0) {
    require(cudaMemsetAsync(to, 0, bytes, cuda(stream)), "cudaMemsetAsync");
  }
}

namespace {

template <typename T>
void drop_on_gpu(Stream stream, T* out, const T* in, std::size_t n, float p, const RandomKey& key) {
  launch(stream, blocks_for((n + 3) / 4), drop_all<T>, out, in, n, detail::settled(n, p, key));
}

template <typename Change, typename Out, typename In>
void change_on_gpu(Stream stream, Out* out, const In* in, std::size_t n) {
  const unsigned blocks = blocks_for((n + kElementsPerThread - 1) / kElementsPerThread);
  launch(stream, blocks, change_all<Change, Out, In>, out, in, n);
}

}  // namespace

void dropout(Stream stream, float* out, const float* in, std::size_t n, float p,
             const RandomKey& key) {
  stream ? drop_on_gpu(stream, out, in, n, p, key) : dropout(out, in, n, p, key);
}

void dropout(Stream stream, BFloat16* out, const BFloat16* in, std::size_t n, float p,
             const RandomKey& key) {
  stream ? drop_on_gpu(stream, out, in, n, p, key) : dropout(out, in, n, p, key);
}

void add(Stream stream, float* sum, const float* term, std::size_t n) {
  stream ? change_on_gpu<Add>(stream, sum, term, n) : add(sum, term, n);
}

void add(Stream stream, float* sum, const BFloat16* term, std::size_t n) {
  stream ? change_on_gpu<Add>(stream, sum, term, n) : add(sum, term, n);
}

void add_rounded(Stream stream, float* sum, const float* term, std::size_t n) {
  stream ? change_on_gpu<AddRounded>(stream, sum, term, n) : add_rounded(sum, term, n);
}

void widen(Stream stream, float* out, const BFloat16* in, std::size_t n) {
  stream ? change_on_gpu<Convert>(stream, out, in, n) : widen(out, in, n);
}

void narrow(Stream stream, BFloat16* out, const float* in, std::size_t n) {
  stream ? change_on_gpu<Convert>(stream, out, in, n) : narrow(out, in, n);
}

namespace {

template <typename T>
void norm_on_gpu(Stream stream, double* sum, double* chunks, const T* x, std::size_t n) {
  const std::size_t num_chunks = num_norm_chunks(n);
  const unsigned blocks = blocks_for(num_chunks * kNormLanes);
  launch(stream, blocks, norm_of_chunks<T>, chunks, x, n);
  launch(stream, 1, fold_chunks, sum, chunks, num_chunks);
}

}  // namespace

void squared_norm(Stream stream, double* sum, double* chunks, const float* x, std::size_t n) {
  stream ? norm_on_gpu(stream, sum, chunks, x, n) : void(*sum = squared_norm(x, n));
}

void squared_norm(Stream stream, double* sum, double* chunks, const BFloat16* x, std::size_t n) {
  stream ? norm_on_gpu(stream, sum, chunks, x, n) : void(*sum = squared_norm(x, n));
}

}  // namespace spillway::kernels
