#pragma once

#include <nanobind/nanobind.h>
#include <torch/csrc/autograd/python_variable.h>

/// torch.Tensor and at::Tensor are the same object on both sides: nothing is copied.
namespace nanobind::detail {

template <>
struct type_caster<at::Tensor> {
  NB_TYPE_CASTER(at::Tensor, const_name("torch.Tensor"))

  bool from_python(handle source, std::uint8_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    if (!THPVariable_Check(source.ptr())) return false;
    value = THPVariable_Unpack(source.ptr());
    return true;
  }
  static handle from_cpp(const at::Tensor& tensor, rv_policy /*policy*/,
                         cleanup_list* /*cleanup*/) noexcept {
    return THPVariable_Wrap(tensor);
  }
};

}  // namespace nanobind::detail
