#include "models/graphs/graph_facts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "models/base/reason.h"
#include "models/graphs/graph_node.h"
#include "models/graphs/node_call.h"
#include "spillway/error.h"

namespace spillway {
namespace {

at::Tensor without_memory(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, at::TensorOptions(type).device(at::kMeta));
}

/// For operators that need values to say which shape they give: all are zero, and inputs take no
/// memory.
void run_with_zeros(const NodeCall& call, std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> zeros(values.size());
  for (const int read : call.reads()) {
    const at::Tensor& like = values[static_cast<std::size_t>(read)];
    zeros[static_cast<std::size_t>(read)] = at::zeros({}, like.scalar_type()).expand(like.sizes());
  }
  call.run(zeros, at::kCPU);
  for (std::size_t v = values.size(); v < zeros.size(); ++v) {
    const at::Tensor& made = zeros[v];
    values.push_back(made.defined() ? without_memory(made.sizes(), made.scalar_type()) : made);
  }
}

}  // namespace

GraphFacts::GraphFacts(const ExportedGraph& graph, const std::vector<Given>& given)
    : graph_(graph), num_given_(static_cast<int>(given.size())) {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> values;
  for (const Given& each : given) {
    values.push_back(without_memory(each.shape, each.type));
    values_.push_back({.shape = each.shape, .type = each.type, .is_fixed = each.is_fixed});
  }
  for (int n = 0; n < num_nodes(); ++n) {
    outputs_.push_back(static_cast<int>(values_.size()));
    run(n, values);
    bool is_fixed = node(n).op != kDropout;
    for_each_value(node(n), [&](int value) { is_fixed = is_fixed && at(value).is_fixed; });
    for (std::size_t v = values_.size(); v < values.size(); ++v) {
      Value made{.maker = n, .is_fixed = is_fixed};
      if (values[v].defined()) {
        made.shape = values[v].sizes().vec();
        made.type = values[v].scalar_type();
      }
      values_.push_back(std::move(made));
    }
  }
}

void GraphFacts::run(int number, std::vector<at::Tensor>& values) {
  const GraphNode& call = node(number);
  if (call.op.starts_with("spillway::")) {
    pointwise_.push_back(call.op == kDropout);
    const auto* x = argument<GraphValue>(call, 0);
    if (x == nullptr) throw Error(call.name() + ": needs a value as its first argument");
    values.push_back(values[static_cast<std::size_t>(x->number)]);
    return;
  }
  try {
    const NodeCall prepared(call);
    pointwise_.push_back(prepared.is_pointwise());
    if (!prepared.writes().empty()) writer_ = call.name();
    try {
      prepared.run(values, at::kMeta);
    } catch (const c10::Error&) {
      run_with_zeros(prepared, values);
    }
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: {}", call.name(), reason_of(error)));
  }
}

void GraphFacts::add_makers(int value, bool only_fixed, const std::set<int>& known,
                            std::set<int>& nodes) const {
  if (known.contains(value) || is_given(value) || (only_fixed && !is_fixed(value))) return;
  if (!nodes.insert(maker(value)).second) return;
  for_each_value(node(maker(value)), [&](int read) { add_makers(read, only_fixed, known, nodes); });
}

}  // namespace spillway
