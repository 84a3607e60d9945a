#include "trainer/c10d/gloo_pipes.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <deque>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "core/base/mutex.h"
#include "spillway/error.h"
#include "trainer/c10d/no_sigpipe.h"
#include "trainer/c10d/quiet_c10d.h"

namespace spillway {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using Work = c10::intrusive_ptr<c10d::Work>;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// Longer than any training: transfers end by themselves or by close().
constexpr std::chrono::hours kEver(24 * 365);
constexpr int kTag = 0;  // bytes between two hosts travel in order

/// A view of the bytes.
at::Tensor tensor_of(std::span<const std::byte> bytes) {
  return at::from_blob(const_cast<std::byte*>(bytes.data()),
                       {static_cast<std::int64_t>(bytes.size())}, at::kByte);
}

/// One direction of a pipe, in a group of the two hosts.
class GlooWay {
 public:
  GlooWay(Group group, int peer) : peer_(peer), group_(std::move(group)) {}

  void write(std::span<const std::byte> bytes) {
    run([&](c10d::ProcessGroupGloo& group) {
      std::vector<at::Tensor> tensors{tensor_of(bytes)};
      return group.send(tensors, peer_, kTag);
    });
  }

  void read(std::span<std::byte> bytes) {
    run([&](c10d::ProcessGroupGloo& group) SPILLWAY_REQUIRES(mutex_) {
      if (expected_.empty()) return begin_read(group, bytes);
      const Expected first = std::move(expected_.front());
      expected_.pop_front();
      assert(first.bytes.data() == bytes.data() && first.bytes.size() == bytes.size());
      if (!first.work) throw PipeBroken("the connection broke");
      return first.work;
    });
  }

  void expect(std::span<std::byte> bytes) {
    const NoSigpipe no_sigpipe;
    const MutexLock lock(mutex_);
    if (!group_) return;
    Expected& last = expected_.emplace_back(bytes);
    try {
      last.work = begin_read(*group_, bytes);
    } catch (const std::exception&) {  // the connection broke: its read will say so
    }
  }

  void close() {
    Group last;  // destroyed without the lock
    const MutexLock lock(mutex_);
    last = std::move(group_);
    if (work_) work_->abort();
    expected_.clear();  // with the lock: after any close() Gloo writes into none of them
  }

 private:
  struct Expected {
    std::span<std::byte> bytes;
    Work work = {};  // null: it could not begin
  };

  Work begin_read(c10d::ProcessGroupGloo& group, std::span<std::byte> bytes) const {
    std::vector<at::Tensor> tensors{tensor_of(bytes)};
    return group.recv(tensors, peer_, kTag);
  }

  /// The work is there for close() while this thread waits for it.
  template <typename Begin>
  void run(const Begin& begin) {
    const NoSigpipe no_sigpipe;
    Group group;
    Work work;
    bool is_done = false;
    try {
      {
        const MutexLock lock(mutex_);
        if (!group_) throw PipeBroken("closed");
        group = group_;
        work_ = work = begin(*group);
      }
      is_done = work->wait(kEver);
    } catch (const PipeBroken&) {
      throw;
    } catch (const std::exception&) {  // the connection broke
    }
    const MutexLock lock(mutex_);
    work_.reset();
    if (!is_done) throw PipeBroken("the connection broke");
  }

  const int peer_;
  Mutex mutex_;
  Group group_ SPILLWAY_GUARDED_BY(mutex_);  // null: closed
  Work work_ SPILLWAY_GUARDED_BY(mutex_);
  std::deque<Expected> expected_ SPILLWAY_GUARDED_BY(mutex_);
};

/// In Gloo a receiver says when it is ready. In a group for both directions it would say so behind
/// all that it is sending itself.
class GlooPipe final : public Pipe {
 public:
  /// `peer`: in both groups, which have two members.
  GlooPipe(Group out, Group in, int peer) : out_(std::move(out), peer), in_(std::move(in), peer) {}
  ~GlooPipe() override { close(); }
  GlooPipe(const GlooPipe&) = delete;
  GlooPipe& operator=(const GlooPipe&) = delete;

  void write(std::span<const std::byte> bytes) override { out_.write(bytes); }
  void read(std::span<std::byte> bytes) override { in_.read(bytes); }
  void expect(std::span<std::byte> bytes) override { in_.expect(bytes); }
  void close() override {
    out_.close();
    in_.close();
  }

 private:
  GlooWay out_, in_;
};

/// To another host, which does the same.
std::unique_ptr<Pipe> connect_over(c10d::Store& shared,
                                   const std::shared_ptr<gloo::transport::Device>& device,
                                   const GlooPlace& place, int peer, Clock::time_point end) {
  const auto [first, second] = std::minmax(place.number, peer);
  const int own = place.number == first ? 0 : 1;
  const auto store = shared.clone();  // waits of its own
  const auto connected = [&](int from, int to) {
    const milliseconds left = left_until(end);
    const auto options = c10d::ProcessGroupGloo::Options::create(left);
    options->devices.push_back(device);
    options->threads = 1;
    store->setTimeout(left);
    const auto pair = c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("{}/{}-{}", place.group, from, to), store);
    return c10::make_intrusive<c10d::ProcessGroupGloo>(pair, own, /*size=*/2, options);
  };
  Group there = connected(first, second), back = connected(second, first);
  if (own == 1) std::swap(there, back);
  return std::make_unique<GlooPipe>(std::move(there), std::move(back), 1 - own);
}

void refuse_tls() {
  const char* transport = std::getenv("GLOO_DEVICE_TRANSPORT");
  if (transport == nullptr || std::string_view(transport) != "TCP_TLS") return;
  throw Error(
      "the environment has GLOO_DEVICE_TRANSPORT=TCP_TLS, but Gloo in PyTorch 2.11 then sends "
      "plain text all the same; unset it, and set hosts.token_file");
}

}  // namespace

/// One for all groups, because it has a thread.
struct GlooConnector::Device {
  explicit Device(const std::string& address)
      : gloo(c10d::ProcessGroupGloo::createDeviceForHostname(address)) {}
  const QuietC10d quiet;  // also on the threads that connect
  const std::shared_ptr<gloo::transport::Device> gloo;
};

GlooConnector::GlooConnector(const Rendezvous& rendezvous, GlooPlace place)
    : rendezvous_(rendezvous), place_(std::move(place)) {
  refuse_tls();
  const NoSigpipe no_sigpipe;  // also on the device's thread
  device_ = std::make_shared<Device>(place_.address);
}

GlooConnector::~GlooConnector() = default;

std::unique_ptr<Pipe> GlooConnector::connect(int peer, std::chrono::milliseconds limit) const {
  const NoSigpipe no_sigpipe;  // also on the thread that connects
  try {
    return within(limit, [store = rendezvous_.store(), device = device_, place = place_, peer,
                          end = Clock::now() + limit] {
      return connect_over(*store, device->gloo, place, peer, end);
    });
  } catch (const std::exception& error) {
    throw Error(
        fmt::format("host {} could not connect to host {} of group '{}' at {} within {} s ({}); "
                    "check that both have started and reach each other",
                    place_.number, peer, place_.group, place_.address,
                    std::chrono::duration<double>(limit).count(), first_line(error)));
  }
}

}  // namespace spillway
