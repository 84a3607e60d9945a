#include "core/sealing/sealed_pipe.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/peers/deadline.h"
#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::size_t kPart = 256 << 10;
constexpr std::size_t kTag = crypto_aead_chacha20poly1305_ietf_ABYTES;

const unsigned char* data_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* data_of(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

/// One way through a pipe.
class Way {
 public:
  explicit Way(const Key& key) : key_(key) {}

  /// The next part, sealed; valid until the next call.
  std::span<const std::byte> seal(std::span<const std::byte> part) {
    sealed_.resize(part.size() + kTag);
    const Nonce nonce = next_nonce();
    crypto_aead_chacha20poly1305_ietf_encrypt(data_of(std::span(sealed_)), nullptr, data_of(part),
                                              part.size(), nullptr, 0, nullptr, nonce.data(),
                                              key_.data());
    return sealed_;
  }
  /// Opens the next part. False: the other end did not seal these bytes as its next part.
  bool unseal(std::span<const std::byte> sealed, std::span<std::byte> part) {
    const Nonce nonce = next_nonce();
    return crypto_aead_chacha20poly1305_ietf_decrypt(data_of(part), nullptr, nullptr,
                                                     data_of(sealed), sealed.size(), nullptr, 0,
                                                     nonce.data(), key_.data()) == 0;
  }

 private:
  using Nonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;
  Nonce next_nonce() {
    Nonce nonce{};
    std::memcpy(nonce.data(), &parts_, sizeof parts_);
    ++parts_;
    return nonce;
  }

  const Key key_;
  std::uint64_t parts_ = 0;
  std::vector<std::byte> sealed_;
};

class SealedPipe final : public Pipe {
 public:
  SealedPipe(std::shared_ptr<Pipe> pipe, const Key& writing, const Key& reading)
      : pipe_(std::move(pipe)), writing_(writing), reading_(reading) {}
  ~SealedPipe() override { pipe_->close(); }  // before the rooms are gone
  SealedPipe(const SealedPipe&) = delete;
  SealedPipe& operator=(const SealedPipe&) = delete;

  void write(std::span<const std::byte> bytes) override {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPart, bytes.size()))) {
      pipe_->write(writing_.seal(bytes.first(std::min(kPart, bytes.size()))));
    }
  }
  void read(std::span<std::byte> bytes) override {
    if (rooms_.empty()) expect(bytes);
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPart, bytes.size()))) {
      const std::vector<std::byte> room = read_room();
      const auto part = bytes.first(std::min(kPart, bytes.size()));
      if (room.size() != part.size() + kTag || !reading_.unseal(room, part)) {
        throw PipeBroken("damaged or foreign bytes");
      }
    }
  }
  void expect(std::span<std::byte> bytes) override {
    for (std::size_t left = bytes.size(); left > 0; left -= std::min(kPart, left)) {
      sizes_.push_back(std::min(kPart, left) + kTag);
    }
    make_rooms();
  }
  void close() override { pipe_->close(); }

 private:
  static constexpr std::size_t kRooms = 4;

  void make_rooms() {
    for (; rooms_.size() < kRooms && !sizes_.empty(); sizes_.pop_front()) {
      pipe_->expect(rooms_.emplace_back(sizes_.front()));
    }
  }
  /// The next part, sealed.
  std::vector<std::byte> read_room() {
    pipe_->read(rooms_.front());
    std::vector<std::byte> room = std::move(rooms_.front());
    rooms_.pop_front();
    make_rooms();
    return room;
  }

  const std::shared_ptr<Pipe> pipe_;
  Way writing_, reading_;
  std::deque<std::vector<std::byte>> rooms_;  // for the next parts, which the pipe below expects
  std::deque<std::size_t> sizes_;             // of the sealed parts after those
};

/// The host with the lower number writes first, because a write may wait for the read.
void exchange(Pipe& pipe, bool is_first, std::span<const std::byte> own,
              std::span<std::byte> other) {
  if (is_first) pipe.write(own);
  pipe.read(other);
  if (!is_first) pipe.write(own);
}

/// Throws PipeBroken.
std::unique_ptr<Pipe> sealed(const std::shared_ptr<Pipe>& pipe, const PipeEnd& end,
                             const Token& token) {
  using Salt = std::array<std::byte, 32>;
  const bool is_first = end.number < end.peer;
  Salt own, other;
  randombytes_buf(own.data(), own.size());
  exchange(*pipe, is_first, own, other);
  const auto key = [&](int from, int to) {
    std::string purpose =
        fmt::format("pipe from {} to {} of {} {}: ", from, to, end.group.size(), end.group);
    for (const Salt* salt : {is_first ? &own : &other, is_first ? &other : &own}) {
      purpose.append(reinterpret_cast<const char*>(salt->data()), salt->size());
    }
    return token.key(purpose);
  };
  auto made =
      std::make_unique<SealedPipe>(pipe, key(end.number, end.peer), key(end.peer, end.number));
  std::byte proof{}, other_proof{};  // any byte: it is read if the other end has the key
  exchange(*made, is_first, std::span(&proof, 1), std::span(&other_proof, 1));
  return made;
}

}  // namespace

std::unique_ptr<Pipe> seal_pipe(std::unique_ptr<Pipe> pipe, const PipeEnd& end, const Token& token,
                                std::chrono::milliseconds limit) {
  const std::shared_ptr<Pipe> open = std::move(pipe);
  Deadline deadline(*open, limit);
  std::unique_ptr<Pipe> made;
  std::string why;
  try {
    made = sealed(open, end, token);
  } catch (const PipeBroken& broken) {
    why = broken.what();
  }
  if (!deadline.stop()) why = "too late";
  if (why.empty()) return made;
  throw Error(
      fmt::format("host {} has not proved that it has the token of hosts.token_file ({}); its own "
                  "output says why, or somebody else listens in its place",
                  end.peer, why));
}

}  // namespace spillway
