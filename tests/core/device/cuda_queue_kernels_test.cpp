#include "tests/core/device/queue_kernels.h"

namespace spillway::kernels {
namespace {

std::unique_ptr<Device> make(Bytes budget) { return make_cuda_device("cuda:0", 0, budget); }

INSTANTIATE_TEST_SUITE_P(Cuda, QueueKernels, testing::Values(&make));

}  // namespace
}  // namespace spillway::kernels
