#include "trainer/profile/numerics.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "core/base/default_floats.h"
#include "core/base/mutex.h"
#include "core/base/xxh3.h"
#include "core/device/activation_counter.h"
#include "core/device/kernels.h"
#include "trainer/profile/host_rates.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/kernel_flags.h"
#include "trainer/torch/torch_threads.h"

namespace spillway {
namespace {

using Shape = std::vector<std::int64_t>;
using Tensors = std::vector<at::Tensor>;
using Operation = std::function<at::Tensor(const Tensors&)>;

/// The input of a probe: standard normal numbers. `halves` defines the second half of each
/// dimension: a copy of the first (+), its negative (-), or independent numbers (none). Summing
/// products over a dimension that is + in one tensor and - in the other leaves only rounding
/// errors, so another order of additions shows in bf16, too.
struct Input {
  Shape shape;
  std::string halves = "";
};

/// Makes the inputs of a group's probes and collects their results.
class Probes {
 public:
  /// Different in each call.
  at::Tensor make(const Input& input, at::ScalarType type = at::kFloat) {
    const at::Tensor x = at::empty(input.shape, at::kFloat);
    kernels::fill_normal(x.mutable_data_ptr<float>(), static_cast<std::size_t>(x.numel()), 1,
                         {.seed = 19, .stream = draws_++});
    for (std::size_t d = 0; d < input.halves.size(); ++d) {
      const auto dim = static_cast<std::int64_t>(d), half = x.size(dim) / 2;
      if (input.halves[d] == ' ') continue;
      const at::Tensor first = x.narrow(dim, 0, half);
      x.narrow(dim, half, half).copy_(input.halves[d] == '-' ? at::neg(first) : first);
    }
    return x.to(type);
  }

  void take(const at::Tensor& result) {
    const at::Tensor contiguous = result.contiguous();
    hash_.add(contiguous.const_data_ptr(), contiguous.nbytes());
  }

  void take(const std::vector<double>& results) {
    hash_.add(results.data(), results.size() * sizeof(double));
  }

  /// Hashes the result of an operation and all gradients, given the result's `gradient`.
  void run(at::ScalarType type, const std::vector<Input>& inputs, const Operation& operation,
           const std::string& gradient = "") {
    meter_.begin_op(std::numeric_limits<Bytes>::max());
    {
      const MeterScope scope(meter_);
      Tensors leaves;
      for (const Input& input : inputs) leaves.push_back(make(input, type).requires_grad_());
      const at::Tensor output = operation(leaves);
      take(output);
      const at::Tensor of_output = make({output.sizes().vec(), gradient}, output.scalar_type());
      for (const at::Tensor& each : torch::autograd::grad({output}, leaves, {of_output})) {
        take(each);
      }
    }
    activation_bytes_ += meter_.peak_since_begin();
  }

  std::string xxh3() const { return hash_.hex(); }
  Bytes activation_bytes() const { return activation_bytes_; }

 private:
  Xxh3 hash_;
  ActivationCounter meter_{"probes"};
  Bytes activation_bytes_ = 0;
  std::uint32_t draws_ = 0;
};

/// One row, odd sizes, a long sum: each uses different kernels.
void run_products(Probes& probes, at::ScalarType type) {
  for (const auto& [rows, inner, columns] :
       std::vector<std::array<std::int64_t, 3>>{{1, 64, 10}, {33, 65, 17}, {64, 256, 64}}) {
    probes.run(
        type, {{{rows, inner}, "-+"}, {{columns, inner}, "--"}, {{columns}}},
        [](const Tensors& in) { return at::linear(in[0], in[1], in[2]); }, "++");
  }
  probes.run(
      type, {{{4, 24, 16}, " -+"}, {{4, 16, 24}, " --"}},
      [](const Tensors& in) { return at::bmm(in[0], in[1]); }, " ++");
  const Shape heads{2, 4, 32, 16};
  probes.run(
      type, {{heads, "  ++"}, {heads, "  ++"}, {heads, "  --"}},
      [](const Tensors& in) { return at::scaled_dot_product_attention(in[0], in[1], in[2]); },
      "  -+");
}

void run_convolutions(Probes& probes, at::ScalarType type) {
  struct Convolution {
    Shape input, weight;
    std::int64_t stride, groups;
  };
  for (const auto& [input, weight, stride, groups] :
       {Convolution{{4, 1, 8, 8}, {8, 1, 3, 3}, 1, 1},
        Convolution{{4, 8, 8, 8}, {16, 8, 3, 3}, 2, 1},
        Convolution{{4, 8, 8, 8}, {16, 8, 1, 1}, 2, 1},
        Convolution{{16, 16, 4, 4}, {32, 16, 1, 1}, 1, 1},
        Convolution{{1, 8, 6, 6}, {16, 8, 3, 3}, 1, 1},
        Convolution{{2, 8, 8, 8}, {8, 1, 3, 3}, 1, 8}}) {
    const std::int64_t padding = weight[2] / 2;
    probes.run(
        type, {{input, "-+"}, {weight, "--"}, {{weight[0]}}},
        [&](const Tensors& in) {
          return at::conv2d(in[0], in[1], in[2], stride, padding, /*dilation=*/1, groups);
        },
        "++");
  }
}

void run_norms(Probes& probes) {
  const at::Tensor classes = at::arange(33, at::kLong).remainder(17);
  const std::vector<std::pair<std::vector<Input>, Operation>> all{
      {{{{16, 64}}, {{64}}, {{64}}},
       [](const Tensors& in) { return at::layer_norm(in[0], {64}, in[1], in[2]); }},
      {{{{7, 33}}, {{33}}, {{33}}},
       [](const Tensors& in) { return at::layer_norm(in[0], {33}, in[1], in[2]); }},
      {{{{4, 8, 5, 5}}, {{8}}, {{8}}},
       [](const Tensors& in) {
         return at::batch_norm(in[0], in[1], in[2], {}, {}, /*training=*/true, 1, 1e-5, false);
       }},
      {{{{4, 8, 5, 5}}, {{8}}, {{8}}},
       [](const Tensors& in) { return at::group_norm(in[0], 2, in[1], in[2]); }},
      {{{{9, 65}}}, [](const Tensors& in) { return at::softmax(in[0], 1); }},
      {{{{33, 17}}},
       [&](const Tensors& in) {
         return at::cross_entropy_loss(in[0], classes, {}, at::Reduction::Sum);
       }},
      {{{{17, 12}}}, [&](const Tensors& in) { return at::embedding(in[0], classes); }},
      {{{{33, 67}}}, [](const Tensors& in) { return in[0].sum(0); }},
      {{{{33, 67}}}, [](const Tensors& in) { return in[0].mean(1); }},
      {{{{3, 1003}}}, [](const Tensors& in) { return in[0].var(); }},
      {{{{4, 8, 5, 5}}},
       [](const Tensors& in) {
         return in[0].mean({2, 3});
       }},
      {{{{2, 3, 7, 7}}}, [](const Tensors& in) { return at::avg_pool2d(in[0], 3); }},
      {{{{5, 21}}, {{5, 21}}},
       [](const Tensors& in) { return at::mse_loss(in[0], in[1], at::Reduction::Sum); }},
  };
  for (const auto& [shapes, operation] : all) probes.run(at::kFloat, shapes, operation);
}

constexpr std::int64_t kOdd = 1003;  // elements: whole vectors and a remainder

void run_element_wise(Probes& probes) {
  const std::vector<Operation> all{
      [](const Tensors& in) { return at::gelu(in[0], "tanh"); },
      [](const Tensors& in) { return at::gelu(in[0]); },
      [](const Tensors& in) { return at::tanh(in[0]); },
      [](const Tensors& in) { return at::sigmoid(in[0]); },
      [](const Tensors& in) { return at::silu(in[0]); },
      [](const Tensors& in) { return at::exp(in[0]); },
      [](const Tensors& in) { return at::log(at::abs(in[0])); },
      [](const Tensors& in) { return at::sqrt(at::abs(in[0])); },
      // Compilers differ in which operand of a sum they evaluate first, and autograd adds gradients
      // in that order.
      [](const Tensors& in) {
        const at::Tensor product = at::cos(in[0]) * in[0];
        return at::sin(in[0]) + product;
      },
      [](const Tensors& in) { return at::div(in[0] * 1e-39, at::square(in[0]) + 1); },
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Operation& operation : all) probes.run(type, {{{kOdd}}}, operation);
  }
}

/// The source of initial weights.
void run_generators(Probes& probes) {
  const at::Generator generator = at::detail::createCPUGenerator(/*seed_val=*/19);
  for (const std::int64_t size : {kOdd, std::int64_t{7}}) {
    probes.take(at::normal(0, 1, {size}, generator));
    probes.take(at::empty({size}).uniform_(-1, 1, generator));
  }
}

void run_own_kernels(Probes& probes) {
  const auto n = static_cast<std::size_t>(kOdd);
  const auto floats = [](const at::Tensor& x) { return x.mutable_data_ptr<float>(); };
  const at::Tensor g = probes.make({{kOdd}}), x = probes.make({{kOdd}}),
                   narrow = g.to(at::kBFloat16);
  const auto* half = static_cast<const BFloat16*>(narrow.const_data_ptr());
  const at::Tensor m = probes.make({{kOdd}}), v = at::square(probes.make({{kOdd}}));
  kernels::adamw(floats(x), floats(m), floats(v), floats(g), n,
                 {.learning_rate = 1e-3f, .weight_decay = 0.1f});
  kernels::adamw(floats(x), floats(m), floats(v), half, n, {.learning_rate = 1e-3f});
  kernels::sgd(floats(x), floats(m), floats(g), n, {.learning_rate = 1e-2f, .weight_decay = 0.1f});
  kernels::add(floats(v), half, n);
  kernels::add_rounded(floats(v), floats(x), n);
  kernels::dropout(floats(m), floats(x), n, 0.1f, {.seed = 7});
  kernels::narrow(static_cast<BFloat16*>(narrow.mutable_data_ptr()), floats(v), n);
  for (const at::Tensor& result : {x, m, v, narrow}) probes.take(result);
  probes.take(std::vector{kernels::squared_norm(floats(x), n), kernels::squared_norm(half, n)});
}

/// Functions of the C library: learning rates, bias corrections.
void run_scalar_functions(Probes& probes) {
  std::vector<double> results;
  for (int i = 1; i < 200; ++i) {
    const double x = i / 199.0;
    for (const double y : {std::pow(0.999, i), std::cos(3 * x), std::exp(x), std::log(x)}) {
      results.push_back(y);
    }
  }
  probes.take(results);
}

struct Kind {
  const char* name;
  bool on_host;
  std::function<void(Probes&)> run;
};

/// Rename a group when a probe is added or changed: contracts compare groups that both have.
std::vector<Kind> kinds() {
  return {
      {"products_fp32", false, [](Probes& probes) { run_products(probes, at::kFloat); }},
      {"products_bf16", false, [](Probes& probes) { run_products(probes, at::kBFloat16); }},
      {"convolutions_fp32", false, [](Probes& probes) { run_convolutions(probes, at::kFloat); }},
      {"convolutions_bf16", false, [](Probes& probes) { run_convolutions(probes, at::kBFloat16); }},
      {"norms_and_reductions", false, run_norms},
      {"element_wise", false, run_element_wise},
      {"generators", true, run_generators},
      {"own_kernels", true, run_own_kernels},
      {"scalar_functions", true, run_scalar_functions},
  };
}

}  // namespace

std::string Numerics::xxh3() const {
  Xxh3 hash;
  for (const Group& group : groups) hash.add(group.xxh3.data(), group.xxh3.size());
  return hash.hex();
}

Bytes Numerics::activation_bytes() const {
  Bytes bytes = 0;
  for (const Group& group : groups) bytes += group.activation_bytes;
  return bytes;
}

Numerics measure_numerics() {
  initialize_torch();
  const auto measure = [](const Kind& kind) {
    const DefaultFloats floats;
    initialize_torch_thread();
    const c10::AutoGradMode with_graph(true);
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    Probes probes;
    kind.run(probes);
    return Numerics::Group{.name = kind.name,
                           .on_host = kind.on_host,
                           .xxh3 = probes.xxh3(),
                           .activation_bytes = probes.activation_bytes()};
  };
  Numerics measured;
  measured.seconds = seconds_of([&] {
    const std::vector<Kind> all = kinds();
    std::vector<std::future<Numerics::Group>> running;
    for (const Kind& kind : all) running.push_back(std::async(std::launch::async, measure, kind));
    for (auto& group : running) measured.groups.push_back(group.get());
  });
  return measured;
}

const Numerics& numerics() {
  static Mutex mutex;
  static auto* const measured = new std::map<KernelFlags, Numerics>;
  const MutexLock lock(mutex);
  const KernelFlags flags = kernel_flags(/*on_gpus=*/false);
  const auto known = measured->find(flags);
  return known != measured->end() ? known->second
                                  : measured->emplace(flags, measure_numerics()).first->second;
}

}  // namespace spillway
