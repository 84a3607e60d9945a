#include "models/text/rnn_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <span>
#include <utility>
#include <vector>

#include "models/base/class_loss.h"
#include "models/base/compute_type.h"
#include "models/base/dropout.h"

namespace spillway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::span<const at::Tensor>;

/// Some rows of `x` [B, N, H] as a tensor of its own. A view may begin anywhere, and the bits of a
/// product can depend on the alignment of its operands.
at::Tensor rows(const at::Tensor& x, std::int64_t begin, std::int64_t size) {
  return x.narrow(1, begin, size).clone(at::MemoryFormat::Contiguous);
}

/// The hidden states of a chunk [B, S + 1, H] -> [B, S, H].
at::Tensor hidden_states(const at::Tensor& chunk) { return rows(chunk, 0, chunk.size(1) - 1); }

/// Row `row` of a chunk, counted from its end -> [B, H].
at::Tensor state_of(const at::Tensor& chunk, std::int64_t row) {
  return rows(chunk, chunk.size(1) - row, 1).squeeze(1);
}

/// Input, forget, cell and output gate of a step, side by side: [B, 4H'].
struct Gates {
  explicit Gates(const at::Tensor& all) {
    const std::vector<at::Tensor> parts = all.chunk(kGates, 1);
    in = parts[0], forget = parts[1], cell = parts[2], out = parts[3];
  }
  at::Tensor in, forget, cell, out;
};

/// The steps of an LSTM layer: the gates' part from the input, [B, S, 4H'] with its bias; weight_hh
/// and bias_hh; hidden state [B, H] and cell state [B, H'] -> [B, S + 1, H']. With several steps,
/// H' is H. The backward multiplies once for the gradient of weight_hh, where autograd would add S
/// products to it.
/// Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997, with the forget gate of
/// Gers et al., "Learning to forget", 2000.
class LstmSteps : public torch::autograd::Function<LstmSteps> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& from_input,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& hidden, const at::Tensor& cell) {
    const std::int64_t steps = from_input.size(1);
    at::Tensor h = hidden, c = cell.to(at::kFloat);
    std::vector<at::Tensor> gates, cells{c}, states;
    for (std::int64_t s = 0; s < steps; ++s) {
      at::Tensor all = at::linear(h, weight, bias).to(at::kFloat).add_(from_input.select(1, s));
      const Gates gate(all);
      gate.in.sigmoid_(), gate.forget.sigmoid_(), gate.cell.tanh_(), gate.out.sigmoid_();
      c = at::addcmul(gate.forget * c, gate.in, gate.cell);
      h = (gate.out * at::tanh(c)).to(hidden.scalar_type());
      gates.push_back(std::move(all));
      cells.push_back(c);
      states.push_back(h);
    }
    states.push_back(c.to(hidden.scalar_type()));
    const at::Tensor chunk = at::stack(states, 1);
    variable_list saved{weight, hidden, chunk};
    saved.insert(saved.end(), gates.begin(), gates.end());
    saved.insert(saved.end(), cells.begin(), cells.end());
    context->save_for_backward(std::move(saved));
    return chunk;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &weight = saved[0], &hidden = saved[1], &chunk = saved[2];
    const at::Tensor gradient = gradients[0].to(at::kFloat);
    const std::int64_t steps = gradient.size(1) - 1;
    const std::span gates(saved.begin() + 3, static_cast<std::size_t>(steps));
    const std::span cells(saved.begin() + 3 + steps, saved.end());
    at::Tensor to_cell = gradient.select(1, steps), to_hidden = at::zeros_like(to_cell);
    std::vector<at::Tensor> to_gates(gates.size());
    for (std::size_t s = gates.size(); s-- > 0;) {
      to_hidden = to_hidden + gradient.select(1, static_cast<std::int64_t>(s));
      to_gates[s] = step_backward(gates[s], cells[s], cells[s + 1], to_hidden, to_cell)
                        .to(weight.scalar_type());
      to_hidden = at::matmul(to_gates[s], weight).to(at::kFloat);
    }
    const at::Tensor all = at::stack(to_gates, 1);  // [B, S, 4H']
    at::Tensor before = hidden.unsqueeze(1);
    if (steps > 1) before = at::cat({before, chunk.narrow(1, 0, steps - 1)}, 1);
    const at::Tensor flat = all.flatten(0, 1);
    return {all, at::matmul(flat.t(), before.flatten(0, 1)), flat.sum(0),
            to_hidden.to(hidden.scalar_type()), to_cell.to(hidden.scalar_type())};
  }

 private:
  /// The gradient of the gates before their functions, [B, 4H'], from those of the step's hidden
  /// state and cell state; turns `to_cell` into the gradient of the cell state before.
  static at::Tensor step_backward(const at::Tensor& all, const at::Tensor& cell_before,
                                  const at::Tensor& cell, const at::Tensor& to_hidden,
                                  at::Tensor& to_cell) {
    const Gates gate(all);
    const at::Tensor shown = at::tanh(cell);
    to_cell = to_cell + to_hidden * gate.out * (1 - shown * shown);
    const auto through_sigmoid = [](const at::Tensor& y) { return y * (1 - y); };
    const at::Tensor in = to_cell * gate.cell * through_sigmoid(gate.in);
    const at::Tensor forget = to_cell * cell_before * through_sigmoid(gate.forget);
    const at::Tensor candidate = to_cell * gate.in * (1 - gate.cell * gate.cell);
    const at::Tensor out = to_hidden * shown * through_sigmoid(gate.out);
    to_cell = to_cell * gate.forget;
    return at::cat({in, forget, candidate, out}, 1);
  }
};

class RnnEmbed final : public Layer {
 public:
  explicit RnnEmbed(const Positions& positions) : positions_(positions) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext&) const override {
    return {.output = at::embedding(params[0], positions_.of(inputs[0]))};
  }

 private:
  Positions positions_;
};

class RnnEmbedSum final : public Layer {
 public:
  LayerResult forward(Tensors inputs, Tensors, const LayerContext& context) const override {
    // A copy: an output is never an input.
    return {.output = inputs[0].to(scalar_type(context.dtype), /*non_blocking=*/false,
                                   /*copy=*/true)};
  }
};

class RnnLstm final : public Layer {
 public:
  explicit RnnLstm(const RnnChunk& chunk) : chunk_(chunk) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor x =
        dropout(rows(inputs[0], chunk_.steps.begin, chunk_.steps.size), chunk_.dropout, context);
    const at::Tensor from_input = at::linear(x, params[0], params[2]);
    const std::int64_t features = params[1].size(0) / kGates;
    at::Tensor hidden, cell;
    if (inputs.size() == 1) {
      hidden = at::zeros({x.size(0), params[1].size(1)}, x.options());
      cell = hidden.narrow(1, 0, features);
    } else {
      hidden = state_of(inputs[1], 2);
      cell = state_of(inputs[1].narrow(2, chunk_.first, features), 1);
    }
    return {.output = LstmSteps::apply(from_input, params[1], params[3], hidden, cell)};
  }

 private:
  RnnChunk chunk_;
};

class RnnJoin final : public Layer {
 public:
  explicit RnnJoin(const Positions& rows) : rows_(rows) {}

  LayerResult forward(Tensors inputs, Tensors, const LayerContext&) const override {
    std::vector<at::Tensor> pieces;
    for (const at::Tensor& piece : inputs) pieces.push_back(rows_.of(piece));
    return {.output = at::cat(pieces, 2)};
  }

 private:
  Positions rows_;
};

class RnnAttention final : public Layer {
 public:
  LayerResult forward(Tensors inputs, Tensors params, const LayerContext&) const override {
    const at::Tensor h = hidden_states(inputs[0]);  // [B, S, H]
    std::vector<at::Tensor> chunks;
    for (const at::Tensor& chunk : inputs.subspan(1)) chunks.push_back(hidden_states(chunk));
    const at::Tensor source = at::cat(chunks, 1);  // [B, N, H]
    const at::Tensor scores = at::bmm(h, source.transpose(1, 2)).to(at::kFloat);
    const at::Tensor weights = at::softmax(scores, 2).to(h.scalar_type());
    const at::Tensor both = at::cat({at::bmm(weights, source), h}, 2);
    return {.output = at::tanh(at::linear(both, params[0]))};
  }
};

class RnnOutput final : public Layer {
 public:
  RnnOutput(double dropout, bool with_attention)
      : dropout_(dropout), num_states_(with_attention ? 0 : 1) {}

  LayerResult forward(Tensors inputs, Tensors, const LayerContext& context) const override {
    std::vector<at::Tensor> chunks;
    for (const at::Tensor& chunk : inputs) {
      chunks.push_back(chunk.narrow(1, 0, chunk.size(1) - num_states_));
    }
    return {.output = dropout(at::cat(chunks, 1), dropout_, context)};
  }

 private:
  double dropout_;
  std::int64_t num_states_;  // rows of a chunk that are no hidden state
};

class RnnHead final : public Layer {
 public:
  explicit RnnHead(const Positions& targets) : targets_(targets) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor& x = inputs[0];
    const at::Tensor logits = at::linear(x.view({-1, x.size(2)}), params[0], params[1]);
    const at::Tensor targets = targets_.of(inputs[1]).reshape({-1});
    LayerResult result{.output = cross_entropy_sum(logits, targets),
                       .weight = static_cast<double>(targets.numel())};
    if (!context.training) result.prediction = logits.view({x.size(0), x.size(1), -1});
    return result;
  }

 private:
  Positions targets_;
};

class RnnClassHead final : public Layer {
 public:
  explicit RnnClassHead(double dropout) : dropout_(dropout) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor &chunk = inputs[0], &tokens = inputs[1];
    const at::Tensor h = dropout(state_of(chunk, 2), dropout_, context);
    const at::Tensor last = tokens.select(1, tokens.size(1) - 1);
    return class_loss(at::linear(h, params[0], params[1]), last.remainder(params[0].size(0)),
                      context);
  }

 private:
  double dropout_;
};

}  // namespace

std::unique_ptr<Layer> make_rnn_embed(const Positions& positions) {
  return std::make_unique<RnnEmbed>(positions);
}

std::unique_ptr<Layer> make_rnn_embed_sum() { return std::make_unique<RnnEmbedSum>(); }

std::unique_ptr<Layer> make_rnn_lstm(const RnnChunk& chunk) {
  return std::make_unique<RnnLstm>(chunk);
}

std::unique_ptr<Layer> make_rnn_join(const Positions& rows) {
  return std::make_unique<RnnJoin>(rows);
}

std::unique_ptr<Layer> make_rnn_attention() { return std::make_unique<RnnAttention>(); }

std::unique_ptr<Layer> make_rnn_output(double dropout, bool with_attention) {
  return std::make_unique<RnnOutput>(dropout, with_attention);
}

std::unique_ptr<Layer> make_rnn_head(const Positions& targets) {
  return std::make_unique<RnnHead>(targets);
}

std::unique_ptr<Layer> make_rnn_class_head(double dropout) {
  return std::make_unique<RnnClassHead>(dropout);
}

}  // namespace spillway
