#include "core/peers/nccl_pipe.h"

#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <random>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/gpu/fake_cudart.h"
#include "tests/support/gpu/fake_nccl.h"
#include "tests/support/peers/in_process_pipe.h"

namespace spillway::testing {
namespace {

using std::chrono::milliseconds;
using PartBytes = std::vector<std::byte>;

constexpr milliseconds kLong(30'000);

/// Also for the tests of all carriers, in which each host has a GPU.
class FourGpus : public ::testing::Environment {
  void SetUp() override { fake_cuda().num_gpus = 4; }
};
[[maybe_unused]] auto* const four_gpus = ::testing::AddGlobalTestEnvironment(new FourGpus);

class NcclPipes : public ::testing::Test {
 protected:
  NcclPipes() { std::tie(first_below_, second_below_) = InProcessPipe::make(); }
  ~NcclPipes() override {
    first_.reset();
    second_.reset();
    EXPECT_EQ(fake_nccl().communicators, 0);
    EXPECT_EQ(fake_nccl().misused, 0);
    EXPECT_EQ(fake_cuda().taken, 0u);
    EXPECT_EQ(fake_cuda().streams, 0);
    EXPECT_EQ(fake_cuda().events, 0);
    EXPECT_EQ(fake_cuda().on_no_gpu, 0);
    EXPECT_EQ(fake_cuda().on_no_stream, 0);
    EXPECT_EQ(fake_cuda().spinning, 0);
    fake_nccl().sent = 0;
    fake_nccl().sends_left = -1;
  }

  void connect() {
    auto second = std::async(
        std::launch::async, [&] { return over_nccl(std::move(second_below_), {.gpu = 1}, kLong); });
    first_ = over_nccl(std::move(first_below_), {.gpu = 0, .is_first = true}, kLong);
    second_ = second.get();
    fake_nccl().sent = 0;
  }

  static PartBytes drawn(std::size_t size) {
    PartBytes bytes(size);
    std::mt19937_64 random(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }

  std::unique_ptr<Pipe> first_below_, second_below_;
  std::unique_ptr<Pipe> first_, second_;
};

TEST_F(NcclPipes, CarryLargePartsBetweenGpusAndSmallOnesBelow) {
  connect();
  const std::vector<Bytes> small{1, 4096, kLeastOverNccl - 1};
  const std::vector<Bytes> large{kLeastOverNccl, kNcclArea, kNcclArea + 1, 5 * kNcclArea + 3};
  for (const auto& sizes : {small, large}) {
    const auto carry = [&](Pipe& pipe) {
      auto writing = std::async(std::launch::async, [&] {
        for (const Bytes size : sizes) pipe.write(drawn(size));
      });
      for (const Bytes size : sizes) {
        PartBytes taken(size);
        pipe.read(taken);
        EXPECT_EQ(taken, drawn(size)) << size;
      }
      writing.get();
    };
    auto back = std::async(std::launch::async, [&] { carry(*second_); });
    carry(*first_);
    back.get();
    const Bytes sum = std::accumulate(sizes.begin(), sizes.end(), Bytes{0});
    EXPECT_EQ(fake_nccl().sent, sizes == small ? 0 : 2 * sum);
  }
}

TEST_F(NcclPipes, EndAReadWhoseOtherEndIsLost) {
  connect();
  auto reading = std::async(std::launch::async, [&] {
    PartBytes taken(3 * kNcclArea);
    first_->read(taken);
  });
  std::this_thread::sleep_for(milliseconds(20));
  second_.reset();
  EXPECT_THROW(reading.get(), PipeBroken);
  PartBytes more(kLeastOverNccl);
  EXPECT_THROW(first_->read(more), PipeBroken);
}

/// Another thread notices that, and closes the pipe.
TEST_F(NcclPipes, EndAWriteWhenThePipeIsClosed) {
  connect();
  auto writing = std::async(std::launch::async, [&] { first_->write(drawn(3 * kNcclArea)); });
  EXPECT_EQ(writing.wait_for(milliseconds(20)), std::future_status::timeout) << "nobody reads";
  first_->close();
  EXPECT_THROW(writing.get(), PipeBroken);
  EXPECT_THROW(first_->write(drawn(kLeastOverNccl)), PipeBroken);
  EXPECT_THROW(first_->write(drawn(1)), PipeBroken);
}

TEST_F(NcclPipes, BreakWithAnErrorOfNccl) {
  connect();
  fake_nccl().sends_left = 1;
  const auto error = thrown<PipeBroken>([&] { first_->write(drawn(kNcclArea)); });
  EXPECT_STREQ(error.what(), "NCCL: remote process exited");
}

TEST_F(NcclPipes, BreakWithAGpu) {
  connect();
  fake_cuda().broken[0] = cudaErrorIllegalAddress;
  EXPECT_THROW(first_->write(drawn(kNcclArea)), PipeBroken);
  first_.reset();
  fake_cuda().broken[0] = cudaSuccess;
}

TEST_F(NcclPipes, ThrowIfTheOtherEndDoesNotCome) {
  auto reading = std::async(std::launch::async, [&] {
    PartBytes ids(256);
    second_below_->read(ids);
  });
  const auto error = thrown<PipeBroken>(
      [&] { over_nccl(std::move(first_below_), {.gpu = 0, .is_first = true}, milliseconds(50)); });
  EXPECT_STREQ(error.what(), "NCCL: the GPUs are not connected");
}

TEST_F(NcclPipes, ThrowWithoutMemoryOrTheLibrary) {
  fake_nccl().is_missing = true;
  const auto missing = thrown<Error>([&] { require_nccl(); });
  EXPECT_STREQ(missing.what(), "NCCL cannot be loaded (no such file)");
  fake_nccl().is_missing = false;
  auto reading = std::async(std::launch::async, [&] {
    PartBytes ids(256);
    second_below_->read(ids);
  });
  fake_cuda().fragmented = true;
  const auto full = thrown<Error>(
      [&] { over_nccl(std::move(first_below_), {.gpu = 0, .is_first = true}, kLong); });
  fake_cuda().fragmented = false;
  EXPECT_STREQ(full.what(), "GPU 0 has no memory left for NCCL; lower its memory in devices");
}

}  // namespace
}  // namespace spillway::testing
