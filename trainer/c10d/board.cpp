#include "trainer/c10d/board.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/sealing/sealed_text.h"
#include "spillway/error.h"

namespace spillway {

Board::Board(const Rendezvous& rendezvous, const std::optional<Token>& token)
    : rendezvous_(rendezvous) {
  if (token) key_ = token->key("board");
}

void Board::write(const std::string& name, const std::string& text) {
  rendezvous_.ask([name, written = key_ ? seal(*key_, name, text) : text](c10d::Store& store) {
    store.set(name, written);
  });
}

std::int64_t Board::count(const std::string& name, std::int64_t more) {
  return rendezvous_.ask([name, more](c10d::Store& store) { return store.add(name, more); });
}

std::optional<std::string> Board::read(const std::string& name) {
  auto text = rendezvous_.ask([name](c10d::Store& store) {
    return store.check({name}) ? std::optional(store.get_to_str(name)) : std::nullopt;
  });
  if (!text || (!key_ && !is_sealed(*text))) return text;
  if (auto unsealed = key_ ? unseal(*key_, name, *text) : std::nullopt) return unsealed;
  const auto& [host, port] = endpoint();
  const char* const theirs = !key_              ? "a token, and this one has none"
                             : is_sealed(*text) ? "another token"
                                                : "no token";
  throw ConfigError("hosts.token_file", 0,
                    fmt::format("differs: a host at {}:{} has {}; give all hosts the same file",
                                host, port, theirs));
}

}  // namespace spillway
