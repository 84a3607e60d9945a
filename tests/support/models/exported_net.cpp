#include "tests/support/models/exported_net.h"

#include <ATen/ATen.h>

#include <cstring>
#include <fstream>

#include "spillway/exported.h"
#include "spillway/tensor_source.h"
#include "tests/support/models/short_training.h"

namespace spillway::testing {
namespace {

std::string format_name(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kLong) return "I64";
  if (tensor.scalar_type() == at::kInt) return "I32";
  if (tensor.scalar_type() == at::kBool) return "BOOL";
  if (tensor.scalar_type() == at::kBFloat16) return "BF16";
  return tensor.scalar_type() == at::kDouble ? "F64" : "F32";
}

}  // namespace

std::string exported_file(const std::string& document, const NamedTensors& tensors) {
  json header{{"__metadata__", {{"format", "pt"}, {"spillway", document}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor bytes = tensor.detach().contiguous();
    header[name] = {{"dtype", format_name(tensor)},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {data.size(), data.size() + bytes.nbytes()}}};
    data.append(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(file.data(), &length, sizeof length);
  return file + text + data;
}

at::Tensor made_up(std::vector<std::int64_t> shape, double phase) {
  const std::int64_t n = at::zeros(shape).numel();
  return at::sin(at::arange(n).to(at::kFloat) * 1.7 + phase).mul(0.3).view(shape);
}

void ExportedNet::write(const std::filesystem::path& path) const {
  std::ofstream(path, std::ios::binary) << bytes();
}

ExportedNet exported_net(double dropout) {
  constexpr std::int64_t B = kNetBatch, W = kNetWidth;
  ExportedNet net;
  net.tensors = {{"embed.weight", made_up({W, kNetInputs}, 0)},
                 {"embed.bias", made_up({W}, 1)},
                 {"norm.weight", made_up({W}, 2) + 1},
                 {"norm.bias", made_up({W}, 3)},
                 {"norm.running_mean", at::zeros({W})},
                 {"norm.running_var", at::ones({W})},
                 {"norm.num_batches_tracked", at::zeros({}, at::kLong)},
                 {"body.weight", made_up({W, W}, 4)},
                 {"head.weight", made_up({kNetClasses, W}, 5)},
                 {"head.bias", made_up({kNetClasses}, 6)},
                 {"scale", made_up({W}, 7) + 1}};
  json mean = param_json("norm.running_mean", false, false),
       var = param_json("norm.running_var", false, false),
       count = param_json("norm.num_batches_tracked", false, false);
  mean["statistic"] = var["statistic"] = {{"kind", "average"}, {"momentum", 0.1}};
  count["statistic"] = {{"kind", "count"}};
  // Values of "norm": x, weight, bias, mean, variance, count, then the node's.
  const json norm = graph(
      {node("spillway::batch_norm", "", {value(0), value(1), value(2), value(3), value(4), 1e-5}),
       node("aten::relu", "", {value(6)})},
      7);
  // Of "body": x, weight, constant. A half of x is scaled by the constant.
  const json body = graph({node("aten::linear", "", {value(0), value(1), nullptr}),
                           node("aten::mul", "Tensor", {value(3), 0.5}),
                           node("aten::split", "Tensor", {value(0), W / 2, 1}, 2),
                           node("aten::split", "Tensor", {value(2), W / 2, 0}, 2),
                           node("aten::mul", "Tensor", {value(5), value(7)}),
                           node("aten::cat", "", {json::array({value(9), value(6)}), -1}),
                           node("aten::add", "Tensor", {value(4), value(10), 1})},
                          11);
  const json embed = [&](bool drops) {
    json nodes{node("aten::linear", "", {value(0), value(1), value(2)}),
               node("aten::tanh", "", {value(3)})};
    if (drops) nodes.push_back(node("spillway::dropout", "", {value(4), dropout}));
    return graph(nodes, drops ? 5 : 4);
  }(true);
  json embed_eval = embed;
  embed_eval["nodes"].erase(2);
  embed_eval["result"] = 4;
  const json head = graph({node("aten::linear", "", {value(0), value(1), value(2)})}, 3);
  const auto layer = [](const char* name, const char* input, const std::vector<int>& params,
                        const std::vector<int>& constants, int train, int eval,
                        std::int64_t width) {
    return layer_json(name, input, params, constants, train, eval, {B, width});
  };
  net.document = {
      {"version", 1},
      {"name", "Net"},
      {"batch_size", B},
      {"dtype", "float32"},
      {"row", {{"dtype", "float32"}, {"elements", kNetInputs + 1}}},
      {"inputs",
       {{{"name", "x"}, {"begin", 0}, {"shape", {kNetInputs}}, {"dtype", "float32"}},
        {{"name", "class"},
         {"begin", kNetInputs},
         {"shape", json::array()},
         {"dtype", "int64"},
         {"limit", kNetClasses}}}},
      {"parameters",
       {param_json("embed.weight", true, true), param_json("embed.bias", true, false),
        param_json("norm.weight", true, false), param_json("norm.bias", true, false), mean, var,
        count, param_json("body.weight", true, true), param_json("head.weight", true, true),
        param_json("head.bias", false, false)}},
      {"constants", {"scale"}},
      {"graphs", {embed, embed_eval, norm, body, head}},
      {"layers",
       {layer("embed", "x", {0, 1}, {}, 0, 1, W),
        layer("norm", "embed", {2, 3, 4, 5, 6}, {}, 2, 2, W),
        layer("body.0", "norm", {7}, {0}, 3, 3, W), layer("body.1", "body.0", {7}, {0}, 3, 3, W),
        layer("head", "body.1", {8, 9}, {}, 4, 4, kNetClasses)}},
      {"loss",
       {{"type", "cross_entropy"},
        {"inputs", {"head", "class"}},
        {"ignore_index", kIgnoredClass},
        {"label_smoothing", 0.1}}},
      {"metrics", {"accuracy", "perplexity"}}};
  return net;
}

at::Tensor net_rows() {
  const auto classes = at::arange(kNetBatch).remainder(kNetClasses).to(at::kFloat);
  return at::cat({made_up({kNetBatch, kNetInputs}, 0.5), classes.unsqueeze(1)}, 1);
}

std::vector<at::Tensor> initial_values(const Model& model, std::uint64_t seed) {
  std::vector<at::Tensor> values;
  std::vector<std::byte*> pointers;
  for (const ParamSpec& param : model.spec.params) {
    values.push_back(at::zeros(param.tensor.shape(),
                               param.master().dtype == DType::i64 ? at::kLong : at::kFloat));
    pointers.push_back(static_cast<std::byte*>(values.back().mutable_data_ptr()));
  }
  model.initialize(seed, pointers);
  for (std::size_t p = 0; p < values.size(); ++p) {
    const ParamSpec& param = model.spec.params[p];
    if (param.tensor.dtype == DType::bf16) values[p] = values[p].to(at::kBFloat16);
    if (param.trainable) values[p].requires_grad_();
  }
  return values;
}

std::shared_ptr<const DataSplit> exported_net_data() {
  const at::Tensor x = made_up({240, kNetInputs}, 0.5) * 4;
  const at::Tensor classes = (x.sum(1).abs() * 1.3).floor().to(at::kLong).remainder(kNetClasses);
  return tensor_data(x, classes, 0.2);
}

TrialConfig exported_trial(const std::filesystem::path& file) {
  TrialConfig trial;
  trial.name = "exported";
  trial.model = exported_factory(file);
  trial.data = exported_net_data();
  trial.train = short_training(1e-2);
  return trial;
}

}  // namespace spillway::testing
