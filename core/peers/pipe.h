#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>

namespace spillway {

/// The other end of a pipe is gone, or this end was closed.
class PipeBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// This end fails, while the other one may be there. The text says how.
class PipeFailed : public PipeBroken {
 public:
  using PipeBroken::PipeBroken;
};

/// Bytes from one host to another and back, each way in order. One thread reads while another
/// writes.
class Pipe {
 public:
  virtual ~Pipe() = default;
  /// Return when all bytes are sent or received. The parts that one end reads are those that the
  /// other wrote, with the same lengths, none of them 0. Throw PipeBroken.
  virtual void write(std::span<const std::byte> bytes) = 0;
  virtual void read(std::span<std::byte> bytes) = 0;
  /// The reading thread says which part it will read after those that it has said before, so that
  /// a pipe can ask the other end for it in time. It reads these parts, in this order, before any
  /// other. Nobody else touches the bytes until that read or any call of close() has returned.
  virtual void expect(std::span<std::byte> /*bytes*/) {}
  /// Ends reads and writes, those that wait included; on the other side too, at the latest when all
  /// pipes of this host are closed. Any thread may call it, any number of times.
  virtual void close() = 0;
};

}  // namespace spillway
