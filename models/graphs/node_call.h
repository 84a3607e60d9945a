#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "models/graphs/exported_spec.h"

namespace spillway {

/// A call of an operator of LibTorch, found and with its arguments prepared once. Any number of
/// threads may run it.
class NodeCall {
 public:
  /// Throws Error if there is no such operator, if it draws random numbers, or if an argument has
  /// not the type of the operator's schema.
  explicit NodeCall(const GraphNode& node);

  /// Appends the outputs to `values`, by whose numbers the arguments refer to them. Outputs that
  /// are no tensors are undefined ones.
  void run(std::vector<at::Tensor>& values, c10::Device device) const;

  const std::vector<int>& reads() const { return reads_; }
  /// The values that it changes in place.
  const std::vector<int>& writes() const { return writes_; }
  /// The values whose memory its outputs may be.
  const std::vector<int>& views() const { return views_; }
  /// Whether each element of its outputs depends on the elements of its inputs at the same place,
  /// after broadcasting.
  bool is_pointwise() const;

 private:
  /// An argument: a constant, a value, the device, or a list of tensors.
  struct Prepared {
    enum class Kind : std::uint8_t {
      constant,
      value,
      device,
      tensors,
      optional_tensors
    } kind = Kind::constant;
    c10::IValue constant;
    int value = -1;
    std::vector<Prepared> items;
  };

  Prepared prepare(const GraphArgument& argument, const c10::Argument& schema);
  Prepared prepare(const GraphItem& item, const c10::TypePtr& type, const std::string& name);
  Prepared prepare_list(const std::vector<GraphItem>& items, const c10::TypePtr& type,
                        const std::string& name);
  static c10::IValue resolve(const Prepared& argument, const std::vector<at::Tensor>& values,
                             c10::Device device);

  c10::OperatorHandle op_;
  int num_outputs_;
  bool is_product_;
  std::vector<Prepared> arguments_;
  std::vector<int> reads_, writes_, views_;
};

}  // namespace spillway
