#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "core/base/mutex.h"
#include "core/peers/pipe.h"

namespace spillway::testing {

/// Two ends in one process. A write waits for its read, as over a network whose buffers are full.
/// It breaks if a read is another one than expected.
class InProcessPipe final : public Pipe {
 public:
  static std::pair<std::unique_ptr<Pipe>, std::unique_ptr<Pipe>> make() {
    auto there = std::make_shared<Way>(), back = std::make_shared<Way>();
    return {std::unique_ptr<Pipe>(new InProcessPipe(there, back)),
            std::unique_ptr<Pipe>(new InProcessPipe(back, there))};
  }
  ~InProcessPipe() override { close(); }

  void write(std::span<const std::byte> bytes) override {
    const MutexLock lock(out_->mutex);
    out_->offered = bytes;
    out_->is_offered = true;
    out_->changed.notify_all();
    out_->changed.wait(out_->mutex, [this]() SPILLWAY_REQUIRES(out_->mutex) {
      return out_->is_closed || !out_->is_offered;
    });
    if (std::exchange(out_->is_offered, false)) throw PipeBroken("closed");
  }

  void read(std::span<std::byte> bytes) override {
    if (!expected_.empty()) {
      const std::span<std::byte> expected = expected_.front();
      expected_.pop_front();
      if (expected.data() != bytes.data() || expected.size() != bytes.size()) close();
    }
    const MutexLock lock(in_->mutex);
    in_->changed.wait(in_->mutex, [this]() SPILLWAY_REQUIRES(in_->mutex) {
      return in_->is_closed || in_->is_offered;
    });
    if (in_->is_closed || in_->offered.size() != bytes.size()) throw PipeBroken("closed");
    std::ranges::copy(in_->offered, bytes.begin());
    in_->is_offered = false;
    in_->changed.notify_all();
  }

  void expect(std::span<std::byte> bytes) override { expected_.push_back(bytes); }

  void close() override {
    for (const auto& way : {in_, out_}) {
      const MutexLock lock(way->mutex);
      way->is_closed = true;
      way->changed.notify_all();
    }
  }

 private:
  struct Way {
    Mutex mutex;
    CondVar changed;
    std::span<const std::byte> offered SPILLWAY_GUARDED_BY(mutex);
    bool is_offered SPILLWAY_GUARDED_BY(mutex) = false;
    bool is_closed SPILLWAY_GUARDED_BY(mutex) = false;
  };
  InProcessPipe(std::shared_ptr<Way> out, std::shared_ptr<Way> in)
      : out_(std::move(out)), in_(std::move(in)) {}

  const std::shared_ptr<Way> out_, in_;
  std::deque<std::span<std::byte>> expected_;  // of the thread that reads
};

}  // namespace spillway::testing
