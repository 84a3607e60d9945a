#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "apps/cli/program.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway::testing {

/// Runs the program in a folder of its own.
class BadInput : public ::testing::Test {
 protected:
  BadInput() {
    folder_.write("text.txt", std::string(2000, 'x'));
    folder_.write("short.txt", "short");
    folder_.write("empty.txt", "");
    std::filesystem::create_directory(folder_ / "hollow");
    std::filesystem::current_path(folder_.path());
  }
  ~BadInput() override { std::filesystem::current_path(before_); }

  ExitCode run(std::vector<const char*> arguments) {
    out_.str("");
    log_.str("");
    arguments.insert(arguments.begin(), "spillway");
    return run_program(static_cast<int>(arguments.size()), arguments.data(),
                       {.out = out_, .log = log_});
  }
  void expect_said(const std::vector<std::string>& messages) {
    for (const auto& message : messages)
      EXPECT_NE(log_.str().find(message), std::string::npos) << message << "\nin " << log_.str();
    EXPECT_TRUE(log_.str().ends_with("\n"));
  }

  /// Neither trains nor plans with `from` replaced by `to`, and says why.
  void expect_bad_config(std::string text, const std::string& from, const std::string& to,
                         const std::string& message) {
    text.replace(text.find(from), from.size(), to);
    folder_.write("config.yaml", text);
    for (const char* command : {"train", "plan"}) {
      EXPECT_EQ(run({command, "config.yaml"}), kUsage) << message << "\nin " << log_.str();
      expect_said({message});
    }
    EXPECT_FALSE(std::filesystem::exists("out"));
  }

  const std::filesystem::path before_ = std::filesystem::current_path();
  TemporaryFolder folder_;
  std::ostringstream out_, log_;
};

}  // namespace spillway::testing
