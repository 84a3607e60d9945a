#include "core/peers/nccl_pipe.h"

#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <thread>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/gpu/expect_given_back.h"
#include "tests/support/gpu/fake_cudart.h"
#include "tests/support/gpu/fake_nccl.h"
#include "tests/support/peers/in_process_pipe.h"

namespace spillway::testing {
namespace {

using std::chrono::milliseconds;
using PartBytes = std::vector<std::byte>;

constexpr auto kLong = std::chrono::hours(1);  // longer than any test

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
    expect_given_back();
    EXPECT_EQ(fake_cuda().pageable, 0);
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

  /// Differs by place and by size.
  static PartBytes made(std::size_t size) {
    PartBytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i + i / 251 + size);
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
        for (const Bytes size : sizes) pipe.write(made(size));
      });
      for (const Bytes size : sizes) {
        PartBytes taken(size);
        pipe.read(taken);
        EXPECT_EQ(taken, made(size)) << size;
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
  while (fake_nccl().receiving == 0) std::this_thread::yield();
  second_.reset();
  EXPECT_THROW(reading.get(), PipeBroken);
  PartBytes more(kLeastOverNccl);
  EXPECT_THROW(first_->read(more), PipeBroken);
}

/// Another thread notices that, and closes the pipe.
TEST_F(NcclPipes, EndAWriteWhenThePipeIsClosed) {
  connect();
  auto writing = std::async(std::launch::async, [&] { first_->write(made(4 * kNcclArea)); });
  while (fake_nccl().sent == 0) std::this_thread::yield();
  first_->close();  // nobody reads
  EXPECT_THROW(writing.get(), PipeBroken);
  EXPECT_LE(fake_nccl().sent, 2 * kNcclArea) << "no more than two parts begin before one ends";
  EXPECT_THROW(first_->write(made(kLeastOverNccl)), PipeBroken);
  EXPECT_THROW(first_->write(made(1)), PipeBroken);
}

TEST_F(NcclPipes, FailWithAnErrorOfNccl) {
  connect();
  auto reading = std::async(std::launch::async, [&] {
    PartBytes taken(kNcclArea);
    second_->read(taken);
  });
  fake_nccl().sends_left = 1;
  const auto error = thrown<PipeFailed>([&] { first_->write(made(kNcclArea)); });
  EXPECT_STREQ(error.what(), "NCCL: remote process exited");
  first_->close();  // as its owner does
  EXPECT_THROW(reading.get(), PipeBroken);
}

/// In the middle of a part, and from then on.
TEST_F(NcclPipes, FailWithAGpu) {
  connect();
  fake_cuda().copies_left = 2;
  auto reading = std::async(std::launch::async, [&] {
    PartBytes taken(5 * kNcclArea);
    second_->read(taken);
  });
  EXPECT_THROW(first_->write(made(5 * kNcclArea)), PipeFailed);
  EXPECT_THROW(first_->write(made(5 * kNcclArea)), PipeFailed);
  first_->close();
  EXPECT_THROW(reading.get(), PipeBroken);
  first_.reset();
  fake_cuda().broken[0] = cudaSuccess;
  fake_cuda().copies_left = -1;
}

/// Takes the ids of the first end, and says nothing more.
std::future<void> silent(Pipe& pipe) {
  return std::async(std::launch::async, [&pipe] {
    PartBytes ids(2 * 128);
    pipe.read(ids);
  });
}

TEST_F(NcclPipes, AreNotConnectedIfTheOtherEndSaysNothing) {
  const auto other = silent(*second_below_);
  const auto error = thrown<PipeBroken>(
      [&] { over_nccl(std::move(first_below_), {.gpu = 0, .is_first = true}, milliseconds(50)); });
  EXPECT_STREQ(error.what(), "the GPUs are not connected within 0.05 s");
  // Not even the names.
  std::tie(first_below_, second_below_) = InProcessPipe::make();
  EXPECT_THROW(over_nccl(std::move(first_below_), {.gpu = 0, .is_first = true}, milliseconds(50)),
               PipeBroken);
}

TEST_F(NcclPipes, AreNotConnectedIfTheOtherEndFails) {
  auto other = silent(*second_below_);
  auto first = std::async(std::launch::async, [&] {
    return over_nccl(std::move(first_below_), {.gpu = 0, .is_first = true}, kLong);
  });
  other.get();
  second_below_->close();
  EXPECT_THROW(first.get(), PipeBroken);
}

TEST_F(NcclPipes, NeedMemoryAndTheLibrary) {
  fake_nccl().is_missing = true;
  const auto missing = thrown<Error>([&] { require_nccl(); });
  EXPECT_STREQ(missing.what(), "NCCL cannot be loaded (no such file)");
  fake_nccl().is_missing = false;
  auto other = silent(*second_below_);
  fake_cuda().fragmented = true;
  const auto full = thrown<Error>(
      [&] { over_nccl(std::move(first_below_), {.gpu = 0, .is_first = true}, kLong); });
  fake_cuda().fragmented = false;
  EXPECT_STREQ(full.what(),
               "there is no GPU memory left for NCCL on GPU 0; lower its memory in devices");
}

}  // namespace
}  // namespace spillway::testing
