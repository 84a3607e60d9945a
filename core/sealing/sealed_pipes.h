#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/peers/pipe.h"
#include "core/sealing/token.h"

namespace spillway {

/// Seals the pipes of host `number` to all others, by number, null for this one. All hosts do so
/// together. What goes through is encrypted, and damaged, repeated or foreign bytes break the pipe
/// instead of being read: ChaCha20-Poly1305 (RFC 8439), numbered, in parts of 256 KiB. Each pipe
/// has a key for each way, from the token, the name of the group, the numbers of both hosts, and
/// random bytes of both, so that nothing from another connection fits. Throws Error if a host does
/// not prove within `limit` that it has the token and is of this group.
std::vector<std::unique_ptr<Pipe>> seal_pipes(std::vector<std::unique_ptr<Pipe>> pipes, int number,
                                              const std::string& group, const Token& token,
                                              std::chrono::milliseconds limit);

}  // namespace spillway
