#include "core/peers/peer_link.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/support/peers/in_process_pipe.h"

/// What goes over the pipe of a link, and in which order.
namespace spillway::testing {
namespace {

enum Kind : std::uint64_t { kReady, kTransfer, kMessage };
/// Kind, tag, length, and whether the next header comes before the bytes.
using Header = std::array<std::uint64_t, 4>;

class Deaf final : public PeersListener {
  void heard(int, std::span<const std::byte>) override {}
  void lost(int, const std::string&) override {}
};

Header read_header(Pipe& pipe) {
  Header header{};
  pipe.read(std::as_writable_bytes(std::span(header)));
  return header;
}

void write_header(Pipe& pipe, const Header& header) {
  pipe.write(std::as_bytes(std::span(header)));
}

std::vector<std::byte> read_bytes(Pipe& pipe, std::size_t length) {
  std::vector<std::byte> bytes(length);
  pipe.read(bytes);
  return bytes;
}

void ignore(Peers::Outcome) {}

TEST(PeerLink, TellsTakesBeforeTransfersAndTheNextTransferBeforeTheBytesOfOne) {
  auto [own, peer] = InProcessPipe::make();
  Deaf deaf;
  const std::vector<std::byte> one(1, std::byte{1}), two(2, std::byte{2}), message(4);
  std::vector<std::byte> taken(3);
  PeerLink link(1, std::move(own), deaf);
  link.notify(message);
  EXPECT_EQ(read_header(*peer),
            (Header{kMessage, 0, 4, 0}));  // then the writer waits with the bytes
  // The link has noted a header when the next one is read.
  for (const std::uint64_t tag : {1u, 2u, 3u}) write_header(*peer, {kReady, tag, tag, 0});
  link.send(1, one, ignore);
  link.send(2, two, ignore);
  link.take(9, taken, ignore);
  EXPECT_EQ(read_bytes(*peer, 4), message);
  EXPECT_EQ(read_header(*peer), (Header{kReady, 9, 3, 1}));
  EXPECT_EQ(read_header(*peer), (Header{kTransfer, 1, 1, 1}));
  EXPECT_EQ(read_header(*peer), (Header{kTransfer, 2, 2, 0}));
  EXPECT_EQ(read_bytes(*peer, 1), one);
  EXPECT_EQ(read_bytes(*peer, 2), two);
}

/// Two transfers of which the second is announced before the bytes of the first.
TEST(PeerLink, TakesTransfersThatAreAnnouncedAhead) {
  auto [own, peer] = InProcessPipe::make();
  Deaf deaf;
  std::vector<std::byte> first(1), second(2);
  PeerLink link(1, std::move(own), deaf);
  link.take(1, first, ignore);
  EXPECT_EQ(read_header(*peer)[1], 1u);
  link.take(2, second, ignore);
  EXPECT_EQ(read_header(*peer)[1], 2u);
  const std::vector<std::byte> one(1, std::byte{1}), two(2, std::byte{2});
  write_header(*peer, {kTransfer, 1, 1, 1});
  write_header(*peer, {kTransfer, 2, 2, 0});
  peer->write(one);
  peer->write(two);
  write_header(*peer, {kReady, 7, 0, 0});  // both have ended
  EXPECT_EQ(first, one);
  EXPECT_EQ(second, two);
}

}  // namespace
}  // namespace spillway::testing
