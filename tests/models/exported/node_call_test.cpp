#include "models/graphs/node_call.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace spillway {
namespace {

thread_local int num_batched = 0;

std::unique_ptr<at::ObserverContext> count_batched(const at::RecordFunction& call) {
  num_batched += std::string(call.name()) == "aten::bmm";
  return nullptr;
}

/// Counts the batches of products that this thread computes.
class BatchedProducts {
 public:
  BatchedProducts()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&count_batched))) {
    num_batched = 0;
  }
  ~BatchedProducts() { at::removeCallback(handle_); }
  BatchedProducts(const BatchedProducts&) = delete;
  BatchedProducts& operator=(const BatchedProducts&) = delete;

 private:
  at::CallbackHandle handle_;
};

/// An operator of two values, and null for a bias.
at::Tensor call(const std::string& op, const at::Tensor& left, const at::Tensor& right) {
  GraphNode node;
  node.op = op;
  node.args = {GraphItem(GraphValue{0}), GraphItem(GraphValue{1})};
  if (op == "aten::linear") node.args.emplace_back(GraphItem(std::monostate{}));
  std::vector<at::Tensor> values{left, right};
  NodeCall(node).run(values, at::kCPU);
  return values.back();
}

/// Gradients decide about the product in LibTorch, but not in a graph.
TEST(NodeCall, MultipliesABatchByAMatrixAtOnce) {
  const at::Tensor batch = at::rand({3, 5, 4}).transpose(1, 2);  // [3, 4, 5], not dense
  at::Tensor matrix = at::rand({5, 6}), rows = at::rand({6, 5}), left = at::rand({7, 4});
  for (const bool with_gradient : {false, true}) {
    const c10::AutoGradMode mode(with_gradient);
    for (at::Tensor* each : {&matrix, &rows, &left}) each->requires_grad_(with_gradient);
    const BatchedProducts counts;
    EXPECT_TRUE(at::allclose(call("aten::matmul", batch, matrix).detach(),
                             at::matmul(batch.contiguous(), matrix.detach())));
    EXPECT_TRUE(at::allclose(call("aten::linear", batch, rows).detach(),
                             at::linear(batch.contiguous(), rows.detach())));
    const at::Tensor from_left = call("aten::matmul", left, batch).detach();
    const at::Tensor of_vector = call("aten::matmul", left.select(0, 0), batch).detach();
    EXPECT_EQ(num_batched, 0);
    EXPECT_TRUE(at::allclose(from_left, at::matmul(left.detach(), batch)));
    EXPECT_TRUE(at::allclose(of_vector, from_left.select(1, 0)));
    EXPECT_EQ(from_left.sizes(), (std::vector<std::int64_t>{3, 7, 5}));
  }
  // Negative control of the count.
  const BatchedProducts counts;
  at::matmul(left.detach(), batch);
  EXPECT_GT(num_batched, 0);
}

TEST(NodeCall, MultipliesBatchesByBatches) {
  const at::Tensor a = at::rand({3, 4, 5}), b = at::rand({3, 5, 2});
  EXPECT_TRUE(at::equal(call("aten::matmul", a, b), at::matmul(a, b)));
}

}  // namespace
}  // namespace spillway
