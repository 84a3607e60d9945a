#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "core/spec/stored_tensor.h"
#include "spillway/ids.h"

namespace spillway::testing {

/// Tensors as files have them, flat, by name, of the parts that parameters hold. Leaves out those
/// of parameters that are not trained and have no part.
inline std::map<std::string, at::Tensor> whole_tensors(const ModelSpec& spec,
                                                       const std::vector<at::Tensor>& parts) {
  std::map<std::string, at::Tensor> tensors;
  for (const StoredTensor& stored : stored_tensors(spec)) {
    const int first = stored.params.front();
    if (!spec.params[at(first)].trainable && !parts[at(first)].defined()) continue;
    const at::Tensor whole = at::zeros({stored.tensor.elements()});
    for (int p : stored.params) {
      const at::Tensor part = parts[at(p)].detach().contiguous().view({-1});
      for_each_run(spec.params[at(p)], [&](const StoredRun& run) {
        whole.narrow(0, run.in_tensor, run.length).copy_(part.narrow(0, run.in_param, run.length));
      });
    }
    tensors[stored.name] = whole;
  }
  return tensors;
}

}  // namespace spillway::testing
