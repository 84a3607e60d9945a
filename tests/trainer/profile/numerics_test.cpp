#include "trainer/profile/numerics.h"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <map>
#include <string>

#include "core/device/kernels.h"
#include "tests/core/device/isa_levels.h"
#include "tests/support/models/tiny_gpt.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/trial/trial_contract.h"

namespace spillway::testing {
namespace {

/// With other convolutions, and with other products in bf16.
class WithoutOneDnn {
 public:
  WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(false); }
  ~WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(true); }
};

std::map<std::string, std::string> hashes_of(const Numerics& numerics) {
  std::map<std::string, std::string> hashes;
  for (const auto& group : numerics.groups) hashes[group.name] = group.xxh3;
  return hashes;
}

TEST(NumericsOfAProcess, AreTheSameEachTime) {
  const Numerics first = measure_numerics();
  for (int i = 0; i < 200; ++i) {
    const Numerics again = measure_numerics();
    ASSERT_EQ(again.groups, first.groups);
    ASSERT_EQ(again.xxh3(), first.xxh3());
  }
  EXPECT_EQ(hashes_of(first).size(), 9u);
  EXPECT_EQ(numerics().xxh3(), first.xxh3());
  EXPECT_GT(first.activation_bytes(), 0u);
}

TEST(NumericsOfAProcess, DoNotDependOnTheCallersThread) {
  const Numerics expected = measure_numerics();
  const c10::AutoGradMode without_graph(false);
  at::globalContext().setFlushDenormal(true);
  std::fesetround(FE_UPWARD);
  const Numerics measured = measure_numerics();
  std::fesetround(FE_TONEAREST);
  at::globalContext().setFlushDenormal(false);
  EXPECT_EQ(measured.groups, expected.groups);
}

TEST(NumericsOfAProcess, DetectOtherKernels) {
  const auto with = hashes_of(measure_numerics());
  const WithoutOneDnn other_kernels;
  const auto without = hashes_of(measure_numerics());
  EXPECT_NE(without.at("convolutions_fp32"), with.at("convolutions_fp32"));
  if (__builtin_cpu_supports("avx512bw")) {  // elsewhere oneDNN has no convolutions in bf16
    EXPECT_NE(without.at("convolutions_bf16"), with.at("convolutions_bf16"));
  }
  EXPECT_EQ(numerics().xxh3(), measure_numerics().xxh3());
  for (const char* same : {"generators", "own_kernels", "scalar_functions"}) {
    EXPECT_EQ(without.at(same), with.at(same)) << same;
  }
}

TEST(NumericsOfAProcess, HaveTheSameBitsForOwnKernelsOnEveryProcessor) {
  for (const kernels::Isa isa : kernels::isa_levels()) {
    const kernels::IsaLimit limit(isa);
    EXPECT_EQ(hashes_of(measure_numerics()).at("own_kernels"), "55dcd61bc2108e469b7b5da0dc273af2");
  }
}

TEST(NumericsOfAProcess, BelongToEveryContract) {
  const TrialConfig trial = tiny_trial();
  const auto model = trial.model(2);
  const auto contract_on = [&](const std::string& device) {
    return contract_of(trial, model->spec, "hash of data", device);
  };
  const Contract contract = contract_on("cpu"), of_gpus = contract_on("cuda: Some GPU");
  for (const auto& group : numerics().groups) {
    const std::string field = "numerics." + group.name;
    EXPECT_EQ(contract.at(field), group.xxh3);
    EXPECT_EQ(of_gpus.contains(field), group.on_host) << field;
  }
}

}  // namespace
}  // namespace spillway::testing
