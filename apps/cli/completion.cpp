#include "apps/cli/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/cli/cli.h"

namespace spillway {
namespace {

/// A positional argument, named as in help.
struct Argument {
  std::string name, type;
  bool repeats = false;
};

std::vector<Argument> arguments_of(const CLI::App& command) {
  std::vector<Argument> arguments;
  for (const auto* option : command.get_options()) {
    if (option->get_positional())
      arguments.push_back({.name = option->get_name(true),
                           .type = option->get_type_name(),
                           .repeats = option->get_items_expected_max() > 1});
  }
  return arguments;
}

/// (name, description)
std::vector<std::pair<std::string, std::string>> options_of(const CLI::App& command) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const auto* option : command.get_options()) {
    for (const auto& name : option->get_lnames())
      options.emplace_back("--" + name, option->get_description());
  }
  return options;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

/// Quotes `text` as one word of a shell.
std::string word(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// "bash|zsh" as "bash zsh".
std::string choices(std::string type) {
  std::ranges::replace(type, '|', ' ');
  return type;
}

std::string words_with_equals(const std::vector<std::string>& keys) {
  std::string text;
  for (const auto& key : keys) text += (text.empty() ? "" : " ") + key + "=";
  return text;
}

std::string bash_case(const CLI::App& command) {
  std::string options, places, rest;
  for (const auto& [name, description] : options_of(command))
    options += (options.empty() ? "" : " ") + name;
  for (const auto& argument : arguments_of(command)) {
    if (argument.repeats) {
      rest = argument.type;
    } else {
      places += (places.empty() ? "" : " ") + word(argument.type);
    }
  }
  return fmt::format("    {}) options={} places=({}) rest={} ;;\n", command.get_name(),
                     word(options), places, word(rest));
}

std::string zsh_action(const Argument& argument) {
  if (argument.type == kYamlFile) return "_files -g \"*.(yaml|yml)\"";
  if (argument.type == kFolder) return "_files -/";
  if (argument.type == kOverride) return "{compadd -S \"\" -- $_spillway_keys}";
  return "(" + choices(argument.type) + ")";
}

std::string zsh_case(const CLI::App& command) {
  std::string text = "    " + command.get_name() + ") _arguments";
  for (const auto& [name, description] : options_of(command))
    text += " " + word(fmt::format("{}[{}]", name, description));
  int place = 0;
  for (const auto& argument : arguments_of(command)) {
    const auto which = argument.repeats ? "*" : fmt::to_string(++place);
    text += " " + word(fmt::format("{}:{}:{}", which, argument.name, zsh_action(argument)));
  }
  return text + " ;;\n";
}

constexpr const char* kBashBody = R"(  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
    return
  fi
  # Bash takes key=value for three words; values are not completed.
  [[ $word == '=' || ${COMP_WORDS[COMP_CWORD - 1]} == '=' ]] && return
  for ((i = 2; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -* ]] || place=$((place + 1))
  done
  local kind=${places[place]:-$rest}
  case $kind in
    FILE.yaml)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -X '!*.yaml' -- "$word"; compgen -f -X '!*.yml' -- "$word"
                               compgen -d -- "$word")
      ;;
    DIR)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$word")
      ;;
    KEY=VALUE)
      compopt -o nospace 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -W "$keys" -- "$word")
      ;;
    *) mapfile -t COMPREPLY < <(compgen -W "${kind//|/ }" -- "$word") ;;
  esac
}
complete -F _spillway spillway
)";

}  // namespace

std::string bash_completion(const CLI::App& app, const std::vector<std::string>& keys) {
  std::string names, cases;
  for (const auto* command : commands_of(app)) {
    names += command->get_name() + " ";
    cases += bash_case(*command);
  }
  constexpr const char* kBegin = R"(# Completion of spillway for bash. Source it, or save it as
# ~/.local/share/bash-completion/completions/spillway
_spillway() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} options places rest i place=0
  local keys={}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{}--help --version' -- "$word")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}    *) return ;;
)";
  return fmt::format(kBegin, word(words_with_equals(keys)), names, cases) + kBashBody;
}

std::string zsh_completion(const CLI::App& app, const std::vector<std::string>& keys) {
  std::string names, cases;
  for (const auto* command : commands_of(app)) {
    names += " " + word(command->get_name() + ":" + command->get_description());
    cases += zsh_case(*command);
  }
  return fmt::format(R"(#compdef spillway
# Completion of spillway for zsh. Save it as _spillway in a folder of $fpath, or source it.
_spillway() {{
  local -a commands=({})
  local -a _spillway_keys=({})
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{}  esac
}}
if [[ $funcstack[1] == _spillway ]]; then _spillway "$@"; else compdef _spillway spillway; fi
)",
                     names, words_with_equals(keys), cases);
}

}  // namespace spillway
