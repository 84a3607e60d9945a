#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/peers/pipe.h"
#include "core/sealing/token.h"

namespace spillway {

/// One end of a pipe.
struct PipeEnd {
  int number = 0;     ///< of this host
  int peer = 1;       ///< of the host at the other end
  std::string group;  ///< of both
};

/// Seals a pipe; the other end does so at the same time. What goes through is encrypted, and
/// damaged, repeated or foreign bytes break the pipe instead of being read: ChaCha20-Poly1305 (RFC
/// 8439), numbered, in parts of 256 KiB. The pipe has a key for each way, from the token, the name
/// of the group, the numbers of both hosts, and random bytes of both, so that nothing from another
/// connection fits. Throws Error if the other host does not prove within `limit` that it has the
/// token and is of this group.
std::unique_ptr<Pipe> seal_pipe(std::unique_ptr<Pipe> pipe, const PipeEnd& end, const Token& token,
                                std::chrono::milliseconds limit);

}  // namespace spillway
