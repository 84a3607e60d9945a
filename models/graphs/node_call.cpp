#include "models/graphs/node_call.h"

#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

using c10::IValue;
using c10::TypeKind;

/// Their schemas do not say that the result may be the input.
constexpr std::array<std::string_view, 4> kHiddenViews{"aten::type_as", "aten::meshgrid",
                                                       "aten::broadcast_tensors", "aten::einsum"};

c10::OperatorHandle find(const GraphNode& node) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (const auto op = dispatcher.findSchema({node.op, node.overload})) return *op;
  throw Error(
      "is no operator of this LibTorch; export the model with the PyTorch that the program uses");
}

/// The number of a constant argument, if there is one of this name.
std::optional<double> number_named(const GraphNode& node, const c10::FunctionSchema& schema,
                                   std::string_view name) {
  for (std::size_t a = 0; a < node.args.size(); ++a) {
    const auto* item = std::get_if<GraphItem>(&node.args[a]);
    if (schema.arguments()[a].name() != name || item == nullptr) continue;
    if (const auto* number = std::get_if<double>(item)) return *number;
    if (const auto* number = std::get_if<std::int64_t>(item)) return static_cast<double>(*number);
    if (const auto* flag = std::get_if<bool>(item)) return *flag ? 1 : 0;
  }
  return std::nullopt;
}

/// Some operators draw only if they drop something, or only in training.
bool is_random(const GraphNode& node, const c10::OperatorHandle& op) {
  if (!op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  constexpr std::array kSwitches{"dropout_p", "dropout", "p", "train", "training"};
  return std::ranges::none_of(
      kSwitches, [&](const char* name) { return number_named(node, op.schema(), name) == 0; });
}

std::int64_t code_of(const GraphWord& word, TypeKind kind) {
  using Kind = GraphWord::Kind;
  static constexpr std::pair<std::string_view, at::ScalarType> kTypes[] = {
      {"float32", at::kFloat},     {"float64", at::kDouble}, {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16}, {"int64", at::kLong},     {"int32", at::kInt},
      {"int16", at::kShort},       {"int8", at::kChar},      {"uint8", at::kByte},
      {"bool", at::kBool}};
  static constexpr std::pair<std::string_view, at::MemoryFormat> kFormats[] = {
      {"contiguous_format", at::MemoryFormat::Contiguous},
      {"preserve_format", at::MemoryFormat::Preserve},
      {"channels_last", at::MemoryFormat::ChannelsLast},
      {"channels_last_3d", at::MemoryFormat::ChannelsLast3d}};
  if (word.kind == Kind::dtype && kind == TypeKind::ScalarTypeType) {
    for (const auto& [name, type] : kTypes) {
      if (name == word.text) return static_cast<std::int64_t>(type);
    }
  }
  if (word.kind == Kind::memory_format && kind == TypeKind::MemoryFormatType) {
    for (const auto& [name, format] : kFormats) {
      if (name == word.text) return static_cast<std::int64_t>(format);
    }
  }
  if (word.kind == Kind::layout && kind == TypeKind::LayoutType && word.text == "strided")
    return static_cast<std::int64_t>(at::kStrided);
  throw Error(fmt::format("has the word '{}', which the argument does not take", word.text));
}

/// Python's x + 1: a number that does not decide the type of the result.
at::Tensor wrapped(const GraphItem& item) {
  at::Tensor number;
  if (const auto* flag = std::get_if<bool>(&item)) number = at::scalar_tensor(*flag, at::kBool);
  if (const auto* whole = std::get_if<std::int64_t>(&item)) {
    number = at::scalar_tensor(*whole, at::kLong);
  }
  if (const auto* real = std::get_if<double>(&item)) number = at::scalar_tensor(*real, at::kDouble);
  if (number.defined()) number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

/// A constant of this type; nothing if the item has another type.
std::optional<IValue> constant_of(const GraphItem& item, TypeKind kind) {
  const auto* flag = std::get_if<bool>(&item);
  const auto* whole = std::get_if<std::int64_t>(&item);
  const auto* real = std::get_if<double>(&item);
  if (const auto* word = std::get_if<GraphWord>(&item)) return IValue(code_of(*word, kind));
  switch (kind) {
    case TypeKind::TensorType:
      if (at::Tensor number = wrapped(item); number.defined()) return IValue(std::move(number));
      return std::nullopt;
    case TypeKind::NumberType:
      if (flag != nullptr) return IValue(*flag);
      if (real != nullptr) return IValue(*real);
      [[fallthrough]];
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return whole != nullptr ? std::optional<IValue>(*whole) : std::nullopt;
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      if (whole != nullptr) return IValue(static_cast<double>(*whole));
      return real != nullptr ? std::optional<IValue>(*real) : std::nullopt;
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      return flag != nullptr ? std::optional<IValue>(*flag) : std::nullopt;
    case TypeKind::StringType:
      if (const auto* text = std::get_if<std::string>(&item)) return IValue(*text);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

[[noreturn]] void reject(const std::string& name, const c10::TypePtr& type) {
  throw Error(fmt::format("has another type of argument '{}' than {}", name, type->str()));
}

template <typename Element>
IValue list_of(const std::vector<IValue>& items) {
  c10::List<Element> list;
  for (const IValue& item : items) list.push_back(item.to<Element>());
  return list;
}

/// Appends the tensors of one result.
void append(const IValue& result, std::vector<at::Tensor>& values) {
  if (result.isTensorList()) {
    for (const at::Tensor& tensor : result.toTensorVector()) values.push_back(tensor);
  } else {
    values.push_back(result.isTensor() ? result.toTensor() : at::Tensor());
  }
}

bool is_batch_by_matrix(const at::Tensor& batch, const at::Tensor& matrix) {
  return batch.dim() > 2 && matrix.dim() <= 2;
}

/// Makes LibTorch multiply a batch by a matrix in one product, whatever the strides are and whether
/// or not a gradient will be needed: kernels of GPUs give other bits for a batch of products.
/// `stack`: arguments of linear or matmul. Returns whether it has multiplied; the stack then has
/// the result. Source: should_fold() in aten/src/ATen/native/LinearAlgebra.cpp.
bool multiply_at_once(torch::jit::Stack& stack) {
  const at::Tensor left = stack[0].toTensor(), right = stack[1].toTensor();
  if (is_batch_by_matrix(left, right)) {
    stack[0] = left.contiguous();
  } else if (is_batch_by_matrix(right, left)) {  // (right^T left^T)^T
    const at::Tensor product = at::matmul(right.mT().contiguous(), left.t());
    stack = {left.dim() == 2 ? product.mT().contiguous() : product};
    return true;
  }
  return false;
}

}  // namespace

NodeCall::NodeCall(const GraphNode& node)
    : op_(find(node)),
      num_outputs_(node.num_outputs),
      is_product_(node.op == "aten::linear" || node.op == "aten::matmul") {
  const c10::FunctionSchema& schema = op_.schema();
  if (node.args.size() != schema.arguments().size()) {
    throw Error(
        fmt::format("has {} arguments, must have {}", node.args.size(), schema.arguments().size()));
  }
  if (is_random(node, op_)) {
    throw Error("draws random numbers, which only spillway::dropout may; remove it from the model");
  }
  const bool gives_view = std::ranges::any_of(
      schema.returns(), [](const c10::Argument& of) { return of.alias_info() != nullptr; });
  const bool hides_view = std::ranges::find(kHiddenViews, node.op) != kHiddenViews.end();
  for (std::size_t a = 0; a < node.args.size(); ++a) {
    const std::size_t before = reads_.size();
    const c10::Argument& argument = schema.arguments()[a];
    arguments_.push_back(prepare(node.args[a], argument));
    const auto own =
        std::vector<int>(reads_.begin() + static_cast<std::ptrdiff_t>(before), reads_.end());
    const c10::AliasInfo* alias = argument.alias_info();
    if (alias != nullptr && alias->isWrite()) writes_.insert(writes_.end(), own.begin(), own.end());
    if (hides_view || (alias != nullptr && gives_view))
      views_.insert(views_.end(), own.begin(), own.end());
  }
}

bool NodeCall::is_pointwise() const { return op_.hasTag(at::Tag::pointwise); }

NodeCall::Prepared NodeCall::prepare(const GraphArgument& argument, const c10::Argument& schema) {
  if (const auto* item = std::get_if<GraphItem>(&argument))
    return prepare(*item, schema.real_type(), schema.name());
  return prepare_list(std::get<std::vector<GraphItem>>(argument), schema.real_type(),
                      schema.name());
}

NodeCall::Prepared NodeCall::prepare(const GraphItem& item, const c10::TypePtr& type,
                                     const std::string& name) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    if (std::holds_alternative<std::monostate>(item)) return {};
    return prepare(item, optional->getElementType(), name);
  }
  if (const auto* value = std::get_if<GraphValue>(&item)) {
    if (type->kind() != TypeKind::TensorType) reject(name, type);
    reads_.push_back(value->number);
    return {.kind = Prepared::Kind::value, .constant = {}, .value = value->number, .items = {}};
  }
  if (std::holds_alternative<GraphDevice>(item)) {
    if (type->kind() != TypeKind::DeviceObjType) reject(name, type);
    return {.kind = Prepared::Kind::device, .constant = {}, .value = -1, .items = {}};
  }
  auto constant = constant_of(item, type->kind());
  if (!constant) reject(name, type);
  return {
      .kind = Prepared::Kind::constant, .constant = *std::move(constant), .value = -1, .items = {}};
}

NodeCall::Prepared NodeCall::prepare_list(const std::vector<GraphItem>& items,
                                          const c10::TypePtr& type, const std::string& name) {
  if (const auto optional = type->cast<c10::OptionalType>())
    return prepare_list(items, optional->getElementType(), name);
  const auto list = type->cast<c10::ListType>();
  if (!list) reject(name, type);
  const c10::TypePtr& element = list->getElementType();
  Prepared prepared;
  for (const GraphItem& item : items) prepared.items.push_back(prepare(item, element, name));
  std::vector<IValue> constants;
  for (const Prepared& item : prepared.items) constants.push_back(item.constant);
  switch (element->kind()) {
    case TypeKind::TensorType:
      prepared.kind = Prepared::Kind::tensors;
      return prepared;
    case TypeKind::OptionalType:
      if (element->expect<c10::OptionalType>()->getElementType()->kind() != TypeKind::TensorType)
        reject(name, type);
      prepared.kind = Prepared::Kind::optional_tensors;
      return prepared;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      prepared.constant = list_of<std::int64_t>(constants);
      break;
    case TypeKind::FloatType:
      prepared.constant = list_of<double>(constants);
      break;
    case TypeKind::BoolType:
      prepared.constant = list_of<bool>(constants);
      break;
    default:
      reject(name, type);
  }
  return prepared;
}

IValue NodeCall::resolve(const Prepared& argument, const std::vector<at::Tensor>& values,
                         c10::Device device) {
  const auto tensor = [&](const Prepared& item) {
    return item.kind == Prepared::Kind::value ? values[static_cast<std::size_t>(item.value)]
                                              : item.constant.toTensor();
  };
  switch (argument.kind) {
    case Prepared::Kind::constant:
      return argument.constant;
    case Prepared::Kind::value:
      return values[static_cast<std::size_t>(argument.value)];
    case Prepared::Kind::device:
      return device;
    case Prepared::Kind::tensors: {
      c10::List<at::Tensor> list;
      for (const Prepared& item : argument.items) list.push_back(tensor(item));
      return list;
    }
    case Prepared::Kind::optional_tensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (const Prepared& item : argument.items) {
        const bool is_none = item.kind == Prepared::Kind::constant && item.constant.isNone();
        list.push_back(is_none ? std::nullopt : std::optional<at::Tensor>(tensor(item)));
      }
      return list;
    }
  }
  return {};
}

void NodeCall::run(std::vector<at::Tensor>& values, c10::Device device) const {
  torch::jit::Stack stack;
  for (const Prepared& argument : arguments_) stack.push_back(resolve(argument, values, device));
  if (!is_product_ || !multiply_at_once(stack)) op_.callBoxed(stack);
  const std::size_t before = values.size();
  for (const IValue& result : stack) append(result, values);
  if (const std::size_t made = values.size() - before;
      made != static_cast<std::size_t>(num_outputs_)) {
    throw Error(fmt::format("gives {} outputs, must give {}", made, num_outputs_));
  }
}

}  // namespace spillway
