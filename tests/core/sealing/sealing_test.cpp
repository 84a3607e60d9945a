#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <string>

#include "core/sealing/sealed_pipe.h"
#include "core/sealing/sealed_text.h"
#include "spillway/error.h"
#include "tests/support/check/contains.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/peers/in_process_pipe.h"

namespace spillway::testing {
namespace {

using Content = std::vector<std::byte>;

const Token kToken(std::string(32, 't')), kOther(std::string(32, 'o'));
constexpr std::chrono::seconds kLong(30);

Content bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(Tokens, HaveAKeyForEachPurpose) {
  EXPECT_EQ(kToken.key("a"), Token(std::string(32, 't')).key("a"));
  EXPECT_NE(kToken.key("a"), kToken.key("b"));
  EXPECT_NE(kToken.key("a"), kOther.key("a"));
}

class TokenFiles : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& text, std::filesystem::perms perms) const {
    const auto path = folder_ / "token";
    std::ofstream(path) << text;
    std::filesystem::permissions(path, perms);
    return path;
  }
  static std::string refusal(const std::filesystem::path& path) {
    return thrown<ConfigError>([&] { read_token(path); }).what();
  }

  const TemporaryFolder folder_;
  static constexpr auto kOwn =
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
};

TEST_F(TokenFiles, MayEndWithANewline) {
  const std::string secret(64, 'f');
  EXPECT_EQ(read_token(file(secret + "\n", kOwn)).key("a"), Token(secret).key("a"));
}

TEST_F(TokenFiles, AreRefusedIfNotSecret) {
  EXPECT_PRED2(contains, refusal(folder_ / "none"), "hosts.token_file: is ");
  EXPECT_PRED2(contains, refusal(folder_ / "none"), "openssl rand -hex 32");
  EXPECT_PRED2(contains, refusal(file("short", kOwn)), "which has 5 characters, fewer than 32");
  const auto open = file(std::string(64, 'f'), kOwn | std::filesystem::perms::group_read);
  EXPECT_PRED2(contains, refusal(open), "run: chmod 600 " + open.string());
}

TEST(SealedTexts, AreReadWithTheKeyAndTheName) {
  const Key key = kToken.key("texts");
  for (const std::string& text : {std::string(), std::string("one"), std::string(100'000, 'x')}) {
    const std::string sealed = seal(key, "name", text);
    EXPECT_TRUE(is_sealed(sealed));
    EXPECT_EQ(unseal(key, "name", sealed), text);
    EXPECT_EQ(unseal(key, "other", sealed), std::nullopt);
    EXPECT_EQ(unseal(kOther.key("texts"), "name", sealed), std::nullopt);
    EXPECT_NE(seal(key, "name", text), sealed);
  }
  EXPECT_FALSE(is_sealed("plain"));
  EXPECT_EQ(unseal(key, "name", "plain"), std::nullopt);
}

TEST(SealedTexts, CannotBeChanged) {
  const Key key = kToken.key("texts");
  const std::string sealed = seal(key, "name", "secret text");
  EXPECT_FALSE(contains(sealed, "secret"));
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_EQ(unseal(key, "name", changed), std::nullopt) << "byte " << i;
    EXPECT_EQ(unseal(key, "name", sealed.substr(0, i)), std::nullopt);
  }
}

/// Changes what one end writes, as somebody between the ends could.
class ChangedPipe final : public Pipe {
 public:
  /// `change`: makes something of the same size of the n-th part.
  using Change = std::function<Content(std::size_t n, const Content& part)>;
  ChangedPipe(std::unique_ptr<Pipe> pipe, Change change)
      : pipe_(std::move(pipe)), change_(std::move(change)) {}
  void write(std::span<const std::byte> bytes) override {
    pipe_->write(change_(parts_++, {bytes.begin(), bytes.end()}));
  }
  void read(std::span<std::byte> bytes) override { pipe_->read(bytes); }
  void close() override { pipe_->close(); }

 private:
  const std::unique_ptr<Pipe> pipe_;
  const Change change_;
  std::size_t parts_ = 0;
};

using Ends = std::array<std::unique_ptr<Pipe>, 2>;

/// What an end believes.
struct End {
  int number = 0, peer = 1;
  std::string group = "group";
  const Token& token = kToken;
};

std::unique_ptr<Pipe> sealed_end(std::unique_ptr<Pipe> pipe, const End& end,
                                 std::chrono::milliseconds limit = kLong) {
  return seal_pipe(std::move(pipe), {end.number, end.peer, end.group}, end.token, limit);
}

/// Why one end of a pipe is refused, or the other; empty: neither is.
std::string refusal(const End& one, const End& other) {
  auto [first, second] = InProcessPipe::make();
  const auto why = [](std::unique_ptr<Pipe> pipe, const End& end) -> std::string {
    try {
      sealed_end(std::move(pipe), end, std::chrono::seconds(2));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  auto there = std::async(std::launch::async, why, std::move(second), other);
  const std::string here = why(std::move(first), one);
  const std::string at_other = there.get();
  return here.empty() ? at_other : here;
}

/// Both ends; what host 0 writes is changed.
Ends sealed_pipe(ChangedPipe::Change change = [](std::size_t, const Content& part) {
  return part;
}) {
  auto [first, second] = InProcessPipe::make();
  auto changed = std::make_unique<ChangedPipe>(std::move(first), std::move(change));
  auto other = std::async(std::launch::async, [pipe = std::move(second)]() mutable {
    return sealed_end(std::move(pipe), {.number = 1, .peer = 0});
  });
  Ends ends{sealed_end(std::move(changed), {}), nullptr};
  ends[1] = other.get();
  return ends;
}

/// What host 1 reads; nothing if the pipe breaks.
std::optional<Content> carried(Ends& ends, const std::vector<Content>& parts) {
  auto writing = std::async(std::launch::async, [&] {
    try {
      for (const Content& part : parts) ends[0]->write(part);
    } catch (const PipeBroken&) {  // the other end has closed it
    }
  });
  Content all;
  for (const Content& part : parts) {
    Content read(part.size());
    try {
      ends[1]->read(read);
    } catch (const PipeBroken&) {
      ends[1]->close();
      return std::nullopt;
    }
    all.insert(all.end(), read.begin(), read.end());
  }
  return all;
}

Content joined(const std::vector<Content>& parts) {
  Content all;
  for (const Content& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(SealedPipes, CarryBytesBothWays) {
  Ends ends = sealed_pipe();
  std::vector<Content> parts;
  for (std::size_t size : {1U, 100U, 256U << 10, (1U << 20) + 1}) {
    parts.emplace_back(size, std::byte(size % 251));
  }
  EXPECT_EQ(carried(ends, parts), joined(parts));
  std::swap(ends[0], ends[1]);
  EXPECT_EQ(carried(ends, parts), joined(parts));
}

TEST(SealedPipes, ShowNothing) {
  const Content secret = bytes_of("what nobody may see");
  Content seen, seen_again;
  const auto record = [](Content& into) {
    return [&into](std::size_t, const Content& part) {
      into.insert(into.end(), part.begin(), part.end());
      return part;
    };
  };
  Ends ends = sealed_pipe(record(seen)), again = sealed_pipe(record(seen_again));
  EXPECT_EQ(carried(ends, {secret}), secret);
  EXPECT_EQ(carried(again, {secret}), secret);
  EXPECT_TRUE(std::ranges::search(seen, secret).empty());
  // The same bytes look otherwise in another connection.
  EXPECT_FALSE(std::equal(seen.end() - 16, seen.end(), seen_again.end() - 16));

  Content seen_plain;
  auto [first, second] = InProcessPipe::make();
  Ends plain{std::make_unique<ChangedPipe>(std::move(first), record(seen_plain)),
             std::move(second)};
  EXPECT_EQ(carried(plain, {secret}), secret);
  EXPECT_FALSE(std::ranges::search(seen_plain, secret).empty());
}

TEST(SealedPipes, BreakWhereBytesAreForeign) {
  constexpr std::size_t kHandshake = 2;  // parts that go before
  const std::vector<Content> parts{bytes_of("first"), bytes_of("other"), bytes_of("third")};
  const auto carries = [&](const ChangedPipe::Change& change) {
    Ends ends = sealed_pipe(change);
    return carried(ends, parts).has_value();
  };
  EXPECT_TRUE(carries([](std::size_t, const Content& part) { return part; }));
  EXPECT_FALSE(carries([](std::size_t n, Content part) {
    if (n == kHandshake + 1) part[3] ^= std::byte{1};
    return part;
  }));
  Content last;
  EXPECT_FALSE(carries([&](std::size_t n, const Content& part) {
    if (n == kHandshake + 1) return last;  // once more
    return last = part;
  }));
  // Recorded in another connection.
  std::vector<Content> recorded;
  EXPECT_TRUE(carries([&](std::size_t, const Content& part) {
    recorded.push_back(part);
    return part;
  }));
  EXPECT_FALSE(carries(
      [&](std::size_t n, const Content& part) { return n == kHandshake ? recorded[n] : part; }));
}

TEST(SealedPipes, AreOfOneTokenOneGroupAndTwoHosts) {
  const End first, second{.number = 1, .peer = 0};
  EXPECT_EQ(refusal(first, second), "");
  const std::vector<End> others{{.number = 1, .peer = 0, .token = kOther},
                                {.number = 1, .peer = 0, .group = "other"},
                                {.number = 2, .peer = 0},
                                {.number = 2, .peer = 1}};
  for (const End& other : others) {
    EXPECT_PRED2(contains, refusal(first, other), "has not proved that it has the token");
  }
}

/// The pipe below breaks if a read is another one than expected.
TEST(SealedPipes, ReadWhatTheyExpectAndWhatTheyDoNot) {
  auto [first, second] = InProcessPipe::make();
  auto made = std::async([pipe = std::move(second)]() mutable {
    return sealed_end(std::move(pipe), {.number = 1, .peer = 0});
  });
  const std::unique_ptr<Pipe> one = sealed_end(std::move(first), {}), other = made.get();
  std::vector<Content> sent;
  // Some have more parts than the pipe below is told of at once.
  for (const std::size_t size : {1u, (1u << 20) + 1, 32u, 2u << 20, 5u}) {
    sent.emplace_back(size, static_cast<std::byte>(sent.size() + 1));
  }
  auto writing = std::async([&] {
    for (const Content& each : sent) one->write(each);
  });
  std::vector<Content> read;
  for (const Content& each : sent) read.emplace_back(each.size());
  for (std::size_t i = 0; i < 3; ++i) other->expect(read[i]);
  for (std::size_t i = 0; i < 4; ++i) other->read(read[i]);
  other->expect(read[4]);
  other->read(read[4]);
  writing.get();
  EXPECT_EQ(read, sent);
}

/// Sends an end what the end has written.
class Mirror final : public Pipe {
 public:
  void write(std::span<const std::byte> bytes) override {
    parts_.emplace_back(bytes.begin(), bytes.end());
  }
  void read(std::span<std::byte> bytes) override {
    if (next_ == parts_.size() || parts_[next_].size() != bytes.size()) throw PipeBroken("none");
    std::ranges::copy(parts_[next_++], bytes.begin());
  }
  void close() override {}

 private:
  std::vector<Content> parts_;
  std::size_t next_ = 0;
};

TEST(SealedPipes, RefuseTheirOwnBytes) {
  const auto error = thrown<Error>([] { sealed_end(std::make_unique<Mirror>(), {}); });
  EXPECT_PRED2(contains, error.what(), "host 1 has not proved that it has the token");
}

TEST(SealedPipes, RefuseAChangedBeginning) {
  const auto error = thrown<Error>([] {
    sealed_pipe([](std::size_t n, Content part) {
      if (n == 0) part[0] ^= std::byte{1};
      return part;
    });
  });
  EXPECT_PRED2(contains, error.what(), "has not proved that it has the token");
}

TEST(SealedPipes, DoNotWaitLongerThanTheLimit) {
  auto [first, second] = InProcessPipe::make();
  const auto begin = std::chrono::steady_clock::now();
  const auto error =
      thrown<Error>([&] { sealed_end(std::move(first), {}, std::chrono::milliseconds(50)); });
  EXPECT_PRED2(contains, error.what(), "host 1 has not proved that it has the token");
  EXPECT_PRED2(contains, error.what(), "too late");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong);
}

}  // namespace
}  // namespace spillway::testing
