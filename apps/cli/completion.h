#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

/// Scripts that teach a shell the subcommands, options and arguments of a program, made from their
/// declarations. `keys` are offered, with a '=' behind them, where a KEY=VALUE belongs.
namespace spillway {

std::string bash_completion(const CLI::App& app, const std::vector<std::string>& keys);
std::string zsh_completion(const CLI::App& app, const std::vector<std::string>& keys);

}  // namespace spillway
