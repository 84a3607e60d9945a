#pragma once

#include <c10/core/TensorOptions.h>

#include "tests/support/run/training_run.h"
#include "trainer/compute/run_on.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/torch_gpu.h"

/// Sessions and tensors on GPUs.
namespace spillway::testing {

/// A device on each of the first `number` GPUs.
inline SessionConfig gpus(int number, Bytes memory) {
  SessionConfig config = session_of(number, memory);
  config.activation_share = 0.5;
  for (int i = 0; i < number; ++i) {
    config.devices[at(i)].kind = DeviceKind::cuda;
    config.devices[at(i)].index = i;
  }
  return config;
}

/// Calls `work` with the options of tensors of the first GPU, on a thread that runs ops.
template <typename Work>
void on_gpu(const Work& work) {
  initialize_torch();
  const auto device = make_cuda_device("cuda:0", 0, 1_MiB);
  load_torch_gpu();
  run_on(*device, [&] {
    bind_torch_thread(0, device->compute().stream());
    work(at::TensorOptions(torch_device(0)));
  });
}

}  // namespace spillway::testing
