#include "apps/commands/doctor_command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace spillway::testing {
namespace {

TEST(DoctorCommand, MeasuresTheInputsOfPlans) {
  std::ostringstream out;
  EXPECT_EQ(doctor({.json = true}, out), kDone);
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["torch_version"].get<std::string>().substr(0, 4), "2.11");
  EXPECT_GE(json["cores"], 1);
  EXPECT_EQ(json["numerics"]["xxh3"].get<std::string>().size(), 32u);
  EXPECT_EQ(json["numerics"]["groups"]["own_kernels"].get<std::string>().size(), 32u);
  EXPECT_GT(json["memory_bytes"], 100 << 20);
  EXPECT_LE(json["available_bytes"], json["memory_bytes"]);
  for (const char* key : {"copy_bytes_per_s", "update_bytes_per_s", "reduce_bytes_per_s",
                          "matmul_flops_per_s", "all_cores_update_bytes_per_s"})
    EXPECT_GT(json[key], 0) << key;
  const std::size_t num_gpus = json["gpus"].size();
  EXPECT_EQ(json["why_no_gpu"] == "", num_gpus > 0);
  EXPECT_LE(json["links"].size(), num_gpus * num_gpus / 2);
  ASSERT_GE(json["devices"].size(), 1u);
  EXPECT_LE(json["devices"].size(), 1 + num_gpus);
  const auto& cpu = json["devices"][0];
  for (const char* key : {"h2d_bytes_per_s", "d2h_bytes_per_s", "duplex_bytes_per_s", "flops_per_s",
                          "bf16_flops_per_s"})
    EXPECT_GT(cpu[key], 0) << key;
  for (const char* type : {"fp32", "bf16"}) {
    EXPECT_GT(cpu[type]["copies_hidden_from_tokens"], 0) << type;
    EXPECT_GT(cpu[type]["updates_hidden_from_tokens"], 0) << type;
  }
}

TEST(DoctorCommand, PrintsText) {
  std::ostringstream out;
  EXPECT_EQ(doctor({}, out), kDone);
  for (const char* text :
       {"LibTorch 2.11", "Numerics ", "usable cores", "Memory: ", "GPU", "GFLOP/s", "both at once",
        "cpu, bf16: a spilled model hides its copies with ", "use at least "})
    EXPECT_NE(out.str().find(text), std::string::npos) << text;
}

}  // namespace
}  // namespace spillway::testing
