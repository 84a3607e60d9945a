#include "core/peers/nccl_pipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <utility>

#include "core/device/cuda/gpu.h"
#include "core/peers/deadline.h"
#include "core/peers/nccl/nccl_way.h"

namespace spillway {
namespace {

/// The names of both ways: of that from the first end, and of that back.
using WayIds = std::array<ncclUniqueId, 2>;

WayIds drawn_ids() {
  WayIds ids;
  for (ncclUniqueId& id : ids) {
    const ncclResult_t result = nccl_calls().get_unique_id(&id);
    if (result != ncclSuccess) {
      throw Error(fmt::format("NCCL does not work here ({})", nccl_calls().text_of(result)));
    }
  }
  return ids;
}

/// The first end draws them.
WayIds agreed_ids(Pipe& pipe, bool is_first) {
  WayIds ids{};
  std::array<std::byte, sizeof(ids)> bytes;
  if (is_first) {
    ids = drawn_ids();
    std::memcpy(bytes.data(), ids.data(), bytes.size());
    pipe.write(bytes);
  } else {
    pipe.read(bytes);
    std::memcpy(ids.data(), bytes.data(), bytes.size());
  }
  return ids;
}

/// What a sender says on the pipe below once a part is sent.
constexpr std::array kDone{std::byte{1}};

void hear_done(Pipe& pipe) {
  std::array<std::byte, kDone.size()> done{};
  pipe.read(done);
}

/// Calls `begin(part, offset, size)` for each part of some bytes, and `end` with the same once the
/// part's area is needed.
template <typename Begin, typename End>
void in_parts(std::size_t bytes, const Begin& begin, const End& end) {
  const std::size_t parts = (bytes + kNcclArea - 1) / kNcclArea;
  const auto call = [&](const auto& step, std::size_t part) {
    const std::size_t offset = part * kNcclArea;
    step(part, offset, std::min<std::size_t>(kNcclArea, bytes - offset));
  };
  for (std::size_t part = 0; part < parts + NcclWay::kAreas; ++part) {
    if (part >= NcclWay::kAreas) call(end, part - NcclWay::kAreas);
    if (part < parts) call(begin, part);
  }
}

class NcclPipe final : public Pipe {
 public:
  NcclPipe(std::unique_ptr<Pipe> pipe, const NcclEnd& end) : end_(end), pipe_(std::move(pipe)) {}
  ~NcclPipe() override {
    end_on_gpu(end_.gpu, [this] {
      out_.reset();
      in_.reset();
    });
  }
  NcclPipe(const NcclPipe&) = delete;
  NcclPipe& operator=(const NcclPipe&) = delete;

  /// Meanwhile a thread listens for the other end, which may be lost or fail.
  void connect() {
    const WayIds ids = agreed_ids(*pipe_, end_.is_first);
    auto listening = std::async(std::launch::async, [this] {
      try {
        hear_done(*pipe_);
      } catch (const PipeBroken&) {
        closed_ = true;
        throw;
      }
    });
    try {
      on_gpu(end_.gpu, [&] {
        for (const bool from_first : {true, false}) {
          const bool sends = from_first == end_.is_first;
          (sends ? out_ : in_)
              .emplace(NcclWay::End{end_.gpu, sends, ids[from_first ? 0 : 1]}, closed_);
        }
      });
      pipe_->write(kDone);
    } catch (...) {
      close();
      throw;
    }
    listening.get();
  }

  void write(std::span<const std::byte> bytes) override {
    if (bytes.size() < kLeastOverNccl) return pipe_->write(bytes);
    or_abort(*out_, [&] {
      in_parts(
          bytes.size(),
          [&](std::size_t part, std::size_t offset, std::size_t size) {
            out_->begin_send(part, bytes.subspan(offset, size));
          },
          [&](std::size_t part, std::size_t, std::size_t) {
            out_->finish(part);
            pipe_->write(kDone);
          });
    });
  }

  void read(std::span<std::byte> bytes) override {
    if (bytes.size() < kLeastOverNccl) return pipe_->read(bytes);
    or_abort(*in_, [&] {
      in_parts(
          bytes.size(),
          [&](std::size_t part, std::size_t, std::size_t size) { in_->begin_receive(part, size); },
          [&](std::size_t part, std::size_t offset, std::size_t size) {
            hear_done(*pipe_);
            in_->finish(part);
            in_->take(part, bytes.subspan(offset, size));
          });
    });
  }

  void close() override {
    closed_ = true;
    pipe_->close();
  }

 private:
  template <typename Work>
  void or_abort(NcclWay& way, const Work& work) {
    try {
      if (cudaSetDevice(end_.gpu) != cudaSuccess) throw PipeFailed("the GPU is lost");
      work();
    } catch (...) {
      way.abort();
      throw;
    }
  }

  const NcclEnd end_;
  const std::unique_ptr<Pipe> pipe_;
  std::atomic<bool> closed_ = false;
  std::optional<NcclWay> out_, in_;
};

}  // namespace

void require_nccl() { nccl_calls(); }

std::unique_ptr<Pipe> over_nccl(std::unique_ptr<Pipe> pipe, const NcclEnd& end,
                                std::chrono::milliseconds limit) {
  require_nccl();
  auto made = std::make_unique<NcclPipe>(std::move(pipe), end);
  Deadline deadline(*made, limit);
  try {
    made->connect();
  } catch (const PipeBroken&) {
    if (deadline.stop()) throw;
  }
  if (deadline.stop()) return made;
  throw PipeBroken(fmt::format("the GPUs are not connected within {:g} s",
                               std::chrono::duration<double>(limit).count()));
}

}  // namespace spillway
