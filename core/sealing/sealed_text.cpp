#include "core/sealing/sealed_text.h"

#include <sodium.h>

namespace spillway {
namespace {

/// Begins with a byte that no text begins with.
constexpr std::string_view kMark{"\0sealed 1:", 10};
constexpr std::size_t kNonce = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr std::size_t kTextTag = crypto_aead_xchacha20poly1305_ietf_ABYTES;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes_of(std::string& text, std::size_t from) {
  return reinterpret_cast<unsigned char*>(text.data()) + from;
}

}  // namespace

std::string seal(const Key& key, std::string_view name, std::string_view text) {
  std::string sealed(kMark);
  sealed.resize(kMark.size() + kNonce + text.size() + kTextTag);
  unsigned char* const nonce = bytes_of(sealed, kMark.size());
  randombytes_buf(nonce, kNonce);
  crypto_aead_xchacha20poly1305_ietf_encrypt(nonce + kNonce, nullptr, bytes_of(text), text.size(),
                                             bytes_of(name), name.size(), nullptr, nonce,
                                             key.data());
  return sealed;
}

std::optional<std::string> unseal(const Key& key, std::string_view name, std::string_view sealed) {
  if (!is_sealed(sealed)) return std::nullopt;
  const std::string_view nonce = sealed.substr(kMark.size(), kNonce);
  const std::string_view body = sealed.substr(kMark.size() + kNonce);
  std::string text(body.size() - kTextTag, '\0');
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(bytes_of(text, 0), nullptr, nullptr,
                                                 bytes_of(body), body.size(), bytes_of(name),
                                                 name.size(), bytes_of(nonce), key.data()) != 0) {
    return std::nullopt;
  }
  return text;
}

bool is_sealed(std::string_view text) {
  return text.starts_with(kMark) && text.size() >= kMark.size() + kNonce + kTextTag;
}

}  // namespace spillway
