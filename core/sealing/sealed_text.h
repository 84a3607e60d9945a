#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/sealing/token.h"

namespace spillway {

/// Encrypts a text that stands under a name, so that only owners of the key can read it, change it,
/// or put it under another name. XChaCha20-Poly1305 with a random nonce.
std::string seal(const Key& key, std::string_view name, std::string_view text);

/// The text. Nothing if it was not sealed with this key under this name.
std::optional<std::string> unseal(const Key& key, std::string_view name, std::string_view sealed);

/// Whether the text comes from seal().
bool is_sealed(std::string_view text);

}  // namespace spillway
