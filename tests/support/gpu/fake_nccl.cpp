#include "tests/support/gpu/fake_nccl.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "core/peers/nccl/nccl_calls.h"
#include "spillway/error.h"
#include "tests/support/gpu/fake_cudart.h"

using spillway::testing::fake_nccl;
using spillway::testing::launch;
using spillway::testing::seen_by_gpu;

namespace {

constexpr auto kPause = std::chrono::microseconds(100);

sockaddr_un address_of(const ncclUniqueId& id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Behind a zero: a name that is in no file system.
  std::strncpy(address.sun_path + 1, id.internal, sizeof(address.sun_path) - 2);
  return address;
}

}  // namespace

namespace spillway::testing {

/// The connection of two ends, which what waits on a stream may outlive.
class FakeNcclLine {
 public:
  ~FakeNcclLine() {
    for (const int file : {file_.load(), listening_}) {
      if (file >= 0) ::close(file);
    }
  }

  /// Rank 0 listens.
  void connect(const ncclUniqueId& id, int rank) {
    const sockaddr_un address = address_of(id);
    const auto* const name = reinterpret_cast<const sockaddr*>(&address);
    const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (rank == 0) {
      listening_ = file;
      bind(file, name, sizeof(address));
      listen(file, 1);
      while (!is_aborted) {
        pollfd waiting{file, POLLIN, 0};
        if (poll(&waiting, 1, 10) > 0) return file_.store(accept(file, nullptr, nullptr));
      }
      return;
    }
    while (!is_aborted && ::connect(file, name, sizeof(address)) != 0) {
      std::this_thread::sleep_for(kPause);
    }
    file_ = file;
  }

  bool is_connected() const { return file_ >= 0; }
  void abort() {
    is_aborted = true;
    if (is_connected()) shutdown(file_, SHUT_RDWR);
  }
  void write(const std::byte* bytes, std::size_t size) {
    move(size,
         [&](std::size_t done) { return ::send(file_, bytes + done, size - done, MSG_NOSIGNAL); });
  }
  void read(std::byte* bytes, std::size_t size) {
    move(size, [&](std::size_t done) { return ::recv(file_, bytes + done, size - done, 0); });
  }

 private:
  /// If the other end is lost, waits to be aborted, as a kernel that asks its memory would.
  template <typename Some>
  void move(std::size_t size, const Some& some) {
    std::size_t done = 0;
    while (done < size && !is_aborted) {
      const auto moved = some(done);
      if (moved > 0) {
        done += static_cast<std::size_t>(moved);
      } else {
        std::this_thread::sleep_for(kPause);
      }
    }
  }

  std::atomic<bool> is_aborted = false;
  int listening_ = -1;
  std::atomic<int> file_ = -1;
};

}  // namespace spillway::testing

using spillway::testing::FakeNcclLine;

struct ncclComm {
  std::shared_ptr<FakeNcclLine> line = std::make_shared<FakeNcclLine>();
  int rank = 0, gpu = 0;
  std::thread connecting;
  std::atomic<int> users = 0;        // threads in a call
  std::atomic<int> in_progress = 0;  // a call: the next question is answered with it
  std::atomic<ncclResult_t> error = ncclSuccess;
};

namespace {

/// A thread in a call.
class User {
 public:
  explicit User(ncclComm_t comm) : comm_(comm) {
    if (++comm_->users > 1) ++fake_nccl().misused;
  }
  ~User() { --comm_->users; }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

 private:
  ncclComm_t comm_;
};

ncclResult_t get_version(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  std::random_device random;
  const unsigned high = random(), low = random();
  const std::string name = fmt::format("spillway-fake-nccl-{}-{:08x}{:08x}", getpid(), high, low);
  *id = {};
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

ncclResult_t comm_init(ncclComm_t* made, int ranks, ncclUniqueId id, int rank,
                       ncclConfig_t* config) {
  if (ranks != 2 || rank < 0 || rank > 1 || config->blocking != 0) return ncclInvalidArgument;
  auto* const comm = new ncclComm;
  comm->rank = rank;
  cudaGetDevice(&comm->gpu);
  comm->connecting = std::thread([line = comm->line, id, rank] { line->connect(id, rank); });
  ++fake_nccl().communicators;
  *made = comm;
  return ncclInProgress;
}

ncclResult_t comm_error(ncclComm_t comm, ncclResult_t* error) {
  const User user(comm);
  const bool is_new = comm->in_progress.exchange(0) > 0;
  *error = is_new || !comm->line->is_connected() ? ncclInProgress : comm->error.load();
  return ncclSuccess;
}

ncclResult_t comm_abort(ncclComm_t comm) {
  { const User user(comm); }
  comm->line->abort();
  comm->connecting.join();
  delete comm;
  --fake_nccl().communicators;
  return ncclSuccess;
}

template <typename Move>
ncclResult_t begin(ncclComm_t comm, const void* bytes, ncclDataType_t type, int peer,
                   cudaStream_t stream, const Move& move) {
  const User user(comm);
  int gpu = 0;
  cudaGetDevice(&gpu);
  if (gpu != comm->gpu || comm->in_progress > 0 || seen_by_gpu(bytes) == bytes) {
    ++fake_nccl().misused;
  }
  if (type != ncclUint8 || peer != 1 - comm->rank || !comm->line->is_connected()) {
    return ncclInvalidArgument;
  }
  try {
    launch(stream, [line = comm->line, move] { move(*line); });
  } catch (const spillway::Error&) {
    return ncclUnhandledCudaError;
  }
  comm->in_progress = 1;
  return ncclInProgress;
}

ncclResult_t send(const void* bytes, std::size_t size, ncclDataType_t type, int peer,
                  ncclComm_t comm, cudaStream_t stream) {
  if (--fake_nccl().sends_left == 0) comm->error = ncclRemoteError;
  fake_nccl().sent += size;
  return begin(comm, bytes, type, peer, stream,
               [=](FakeNcclLine& line) { line.write(seen_by_gpu(bytes), size); });
}

ncclResult_t receive(void* bytes, std::size_t size, ncclDataType_t type, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  return begin(comm, bytes, type, peer, stream, [=](FakeNcclLine& line) {
    ++fake_nccl().receiving;
    line.read(seen_by_gpu(bytes), size);
    --fake_nccl().receiving;
  });
}

const char* text_of(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "an error of NCCL";
}

}  // namespace

namespace spillway::testing {

FakeNccl& fake_nccl() {
  static FakeNccl library;
  // At the end of the program, writes what it has sent where a test wants to know it.
  [[maybe_unused]] static const int reporting = std::at_quick_exit([] {
    const char* const file = std::getenv("SPILLWAY_FAKE_NCCL_REPORT");
    if (file)
      std::ofstream(file) << fmt::format("{} {}\n", library.sent.load(), library.misused.load());
  });
  return library;
}

}  // namespace spillway::testing

namespace spillway {

const NcclCalls& nccl_calls() {
  static const NcclCalls calls{get_version, get_unique_id, comm_init, comm_error,
                               comm_abort,  send,          receive,   text_of};
  if (fake_nccl().is_missing) throw Error("NCCL cannot be loaded (no such file)");
  return calls;
}

}  // namespace spillway
