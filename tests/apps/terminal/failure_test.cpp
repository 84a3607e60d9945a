#include "apps/terminal/failure.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/config_check.h"
#include "runs/log/run_json.h"
#include "tests/support/check/bad_input.h"

namespace spillway::testing {
namespace {

constexpr const char* kLarge =
    "devices: [{memory: 8KiB}]\ndata: {path: text.txt, eval_fraction: 0}\n";

TEST(Failure, HasAKindAndCodeForEachError) {
  const auto expect = [](const std::exception& error, const std::string& kind, ExitCode code) {
    const Failure failure = failure_of(error);
    EXPECT_EQ(failure.kind, kind);
    EXPECT_EQ(failure.code, code) << kind;
    EXPECT_NE(failure.message, "") << kind;
  };
  expect(UsageError("x"), "usage", kUsage);
  expect(ConfigError("seed", 1, "x"), "configuration", kUsage);
  expect(DoesNotFit("x", Tier::device, 2, 1), "does_not_fit", kDoesNotFit);
  expect(std::bad_alloc(), "does_not_fit", kDoesNotFit);
  expect(IoError("cannot read", "x", ENOENT), "io", kTrialFailed);
  expect(CorruptData("x", "is damaged"), "damaged", kUsage);
  expect(NewerFormat("x", 2, 1), "newer_format", kUsage);
  expect(InUse("x", "process 1"), "in_use", kUsage);
  expect(Error("x"), "failed", kTrialFailed);
  expect(std::runtime_error("x"), "internal", kTrialFailed);
}

TEST(Failure, HasAMessageForEachFinding) {
  const ConfigErrors errors({{"name", 3, "is\nlong"}, {"", 0, "is wrong"}});
  EXPECT_EQ(to_text(failure_of(errors)),
            "spillway: line 3: name: is\n  long\nspillway: is wrong\n");
  const Json json = Json::parse(to_json(failure_of(errors)));
  EXPECT_EQ(json["error"]["findings"].dump(),
            "[{\"field\":\"name\",\"line\":3,\"problem\":\"is\\nlong\"},"
            "{\"field\":null,\"line\":null,\"problem\":\"is wrong\"}]");
}

/// With --json standard output is a document of the error, and standard error has the same text.
TEST_F(BadInput, IsReportedAsOneJsonDocument) {
  folder_.write("config.yaml",
                "devices: [{memory: 1MiB}]\ndata: {path: text.txt}\ntrain: {data_parallel: x}\n");
  folder_.write("large.yaml", kLarge);
  const std::vector<std::pair<std::vector<const char*>, std::string>> all{
      {{"train", "config.yaml", "--json"}, "configuration"},
      {{"plan", "config.yaml", "--json"}, "configuration"},
      {{"train", "nowhere.yaml", "--json"}, "configuration"},
      {{"train", "large.yaml", "--json"}, "does_not_fit"},
      {{"resume", "nowhere", "--json"}, "configuration"},
      {{"verify", "nowhere", "--json"}, "configuration"},
      {{"results", "nowhere", "--json"}, "configuration"},
      {{"train", "--json"}, "usage"},
      {{"trian", "--json"}, "usage"},
      {{"doctor", "--json", "--verbose"}, "usage"},
      {{"doctor", "--json=false"}, "usage"},
      {{"completion", "bash", "--json"}, "usage"}};
  for (const auto& [arguments, kind] : all) {
    const ExitCode code = run(arguments);
    const Json error = Json::parse(out_.str()).at("error");
    EXPECT_EQ(error.at("kind"), kind) << error;
    EXPECT_EQ(error.at("exit_code"), static_cast<int>(code)) << error;
    EXPECT_EQ(error.at("findings").empty(), kind != "configuration") << error;
    expect_said({"spillway: "});
  }
  run({"train", "config.yaml", "--json"});
  const Json finding = Json::parse(out_.str())["error"]["findings"][0];
  EXPECT_EQ(finding["field"], "train.data_parallel");
  EXPECT_EQ(finding["line"], 3);
  EXPECT_TRUE(
      finding["problem"].get<std::string>().starts_with("is 'x', must be an integer from 1"));
}

TEST_F(BadInput, IsReportedAsOnePlanIfItDoesNotFit) {
  folder_.write("large.yaml", kLarge);
  EXPECT_EQ(run({"plan", "large.yaml", "--json"}), kDoesNotFit);
  EXPECT_EQ(Json::parse(out_.str()).at("fits"), false);
}

TEST_F(BadInput, CannotControlATerminal) {
  folder_.write("config.yaml",
                "devices: [{memory: 1MiB}]\n"
                "data: {path: \"nope\\rspillway: all is well\\e]0;title\\a\\n spillway: x\"}\n"
                "\"k\\e[2J\": 1\n");
  EXPECT_EQ(run({"train", "config.yaml"}), kUsage);
  expect_said({"'nope\\x0dspillway: all is well\\x1b]0;title\\x07\n   spillway: x'",
               "\nspillway: line 3: k\\x1b[2J: unknown key"});
  EXPECT_EQ(log_.str().find_first_of("\r\x1b\a"), std::string::npos);
  EXPECT_EQ(run({"results", "no\x1bwhere"}), kUsage);
  expect_said({"'no\\x1bwhere' does not exist"});
  EXPECT_EQ(run({"tr\ain"}), kUsage);
  expect_said({"spillway: unknown command 'tr\\x07in'; did you mean 'train'?"});
}

TEST_F(BadInput, RefusesTextWithANulByField) {
  for (const auto& [text, field] : std::vector<std::pair<std::string, std::string>>{
           {"output_dir: \"runs/nul\\0x\"", "output_dir"},
           {"data: {path: [text.txt, \"te\\0xt\"]}", "data.path[1]"},
           {"sweep: {parameters: {data.path: {values: [\"a\\0\"]}}}",
            "sweep.parameters.data.path.values[0]"}}) {
    folder_.write("config.yaml", "devices: [{memory: 1MiB}]\n" + text + "\n");
    EXPECT_EQ(run({"train", "config.yaml"}), kUsage);
    expect_said({"spillway: line 2: " + field + ": has a NUL character; remove it"});
  }
  folder_.write("config.yaml", "devices: [{memory: 1MiB}]\ndata: {path: text.txt}\n");
  EXPECT_EQ(run({"train", "config.yaml", "data={path: [\"a\\0\"]}"}), kUsage);
  expect_said({"spillway: data.path[0]: has a NUL character; remove it"});
  EXPECT_FALSE(std::filesystem::exists("runs"));
}

TEST_F(BadInput, NamesTheHelpOfTheCommand) {
  EXPECT_EQ(run({"train"}), kUsage);
  EXPECT_EQ(log_.str(), "spillway: config is required; see spillway train --help\n");
  EXPECT_EQ(run({}), kUsage);
  EXPECT_EQ(log_.str(), "spillway: A subcommand is required; see spillway --help\n");
}

}  // namespace
}  // namespace spillway::testing
