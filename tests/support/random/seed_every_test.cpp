#include <ATen/Context.h>
#include <gtest/gtest.h>

/// LibTorch seeds its generator differently in each process. With this file, each test of a program
/// draws the same numbers in each run, alone and among the others.
namespace spillway::testing {
namespace {

class SeedEveryTest final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { at::manual_seed(1); }
};

[[maybe_unused]] const bool is_listening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new SeedEveryTest);
  return true;
}();

}  // namespace
}  // namespace spillway::testing
