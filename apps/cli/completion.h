#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

/// Completion scripts for subcommands, options and arguments, made from their declarations. A
/// KEY=VALUE argument completes to one of `keys` and "=".
namespace spillway {

std::string bash_completion(const CLI::App& app, const std::vector<std::string>& keys);
std::string zsh_completion(const CLI::App& app, const std::vector<std::string>& keys);

}  // namespace spillway
