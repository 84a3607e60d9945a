#include "core/peers/nccl_pipe.h"

#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "core/device/cuda/gpu.h"
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
      throw Error(std::string("NCCL: ") + nccl_calls().text_of(result));
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

class NcclPipe final : public Pipe {
 public:
  NcclPipe(std::unique_ptr<Pipe> pipe, const NcclEnd& end, NcclWay::Clock::time_point limit)
      : gpu_(end.gpu), pipe_(std::move(pipe)) {
    const WayIds ids = agreed_ids(*pipe_, end.is_first);
    try {
      on_gpu(gpu_, [&] {
        for (const bool from_first : {true, false}) {
          const bool sends = from_first == end.is_first;
          (sends ? out_ : in_)
              .emplace(NcclWay::End{gpu_, sends, ids[from_first ? 0 : 1]}, limit, closed_);
        }
      });
    } catch (...) {
      disconnect();
      throw;
    }
  }
  ~NcclPipe() override { disconnect(); }
  NcclPipe(const NcclPipe&) = delete;
  NcclPipe& operator=(const NcclPipe&) = delete;

  void write(std::span<const std::byte> bytes) override {
    if (bytes.size() < kLeastOverNccl) return pipe_->write(bytes);
    use_gpu();
    out_->send(bytes);
    pipe_->write(kSent);
  }

  void read(std::span<std::byte> bytes) override {
    if (bytes.size() < kLeastOverNccl) return pipe_->read(bytes);
    use_gpu();
    in_->begin_receive(bytes);
    try {
      std::array<std::byte, kSent.size()> sent{};
      pipe_->read(sent);  // which ends if the other end is lost
    } catch (const PipeBroken&) {
      in_->abort();
      throw;
    }
    in_->finish();
  }

  void close() override {
    closed_ = true;
    pipe_->close();
  }

 private:
  static constexpr std::array kSent{std::byte{1}};

  void disconnect() noexcept {
    end_on_gpu(gpu_, [this] {
      out_.reset();
      in_.reset();
    });
  }
  void use_gpu() const {
    if (cudaSetDevice(gpu_) != cudaSuccess) throw PipeBroken("the GPU is lost");
  }

  const int gpu_;
  const std::unique_ptr<Pipe> pipe_;
  std::atomic<bool> closed_ = false;
  std::optional<NcclWay> out_, in_;
};

}  // namespace

void require_nccl() { nccl_calls(); }

std::unique_ptr<Pipe> over_nccl(std::unique_ptr<Pipe> pipe, const NcclEnd& end,
                                std::chrono::milliseconds limit) {
  require_nccl();
  return std::make_unique<NcclPipe>(std::move(pipe), end, NcclWay::Clock::now() + limit);
}

}  // namespace spillway
