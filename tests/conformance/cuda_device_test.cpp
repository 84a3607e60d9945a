#include "tests/conformance/abandon_conformance.h"

namespace spillway {
namespace {

std::unique_ptr<Device> make_cuda(Bytes budget) { return make_cuda_device("cuda:0", 0, budget); }

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance, ::testing::Values(DeviceCase{"cuda", make_cuda}),
                         [](const auto& test) { return test.param.name; });

TEST(CudaDevice, DescribesItself) {
  const auto device = make_cuda_device("cuda:7", 0, 0);
  EXPECT_EQ(device->name(), "cuda:7");
  EXPECT_EQ(device->kind(), "cuda");
  EXPECT_NE(device->compute().stream(), nullptr);
}

TEST(CudaDevice, RefusesABudgetLargerThanTheGpu) {
  try {
    make_cuda_device("cuda:0", 0, Bytes{1} << 48);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.field, "memory");
    EXPECT_NE(error.problem.find("are free on GPU 0"), std::string::npos) << error.problem;
  }
}

TEST(CudaDevice, SharesAGpu) {
  const auto a = make_cuda(64_MiB), b = make_cuda(64_MiB);
  const auto on_a = a->allocate(64_MiB), on_b = b->allocate(64_MiB);
  const auto home = a->allocate_host(64_MiB), back = b->allocate_host(64_MiB);
  const auto sent = pattern(64_MiB, 1);
  std::copy(sent.begin(), sent.end(), home->data());
  a->host_to_device().copy_async(on_a->data(), home->data(), 64_MiB);
  b->compute().wait(a->host_to_device().record());
  b->compute().copy_async(on_b->data(), on_a->data(), 64_MiB);
  b->device_to_host().wait(b->compute().record());
  b->device_to_host().copy_async(back->data(), on_b->data(), 64_MiB);
  finish(b->device_to_host());
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), back->data()));
}

}  // namespace
}  // namespace spillway
