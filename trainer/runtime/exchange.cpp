#include "trainer/runtime/exchange.h"

#include <atomic>
#include <memory>
#include <utility>

#include "spillway/ids.h"

namespace spillway {
namespace {

/// Counts what has not ended. Shared by the callbacks.
class OpenTransfers {
 public:
  OpenTransfers(std::size_t number, OpRunner::Ended ended)
      : left_(number), ended_(std::move(ended)) {}

  void end(Peers::Outcome outcome) {
    if (outcome == Peers::Outcome::lost) is_lost_ = true;
    if (--left_ == 0) ended_(is_lost_);
  }

 private:
  std::atomic<std::size_t> left_;
  std::atomic<bool> is_lost_ = false;
  const OpRunner::Ended ended_;
};

}  // namespace

void exchange(Peers& peers, std::uint64_t number, const HostCall& call, OpRunner::Ended ended) {
  const std::vector<Transfer>& transfers = call.program->host_ops[at(call.op)].transfers;
  // One more: nothing has ended before all have begun.
  const auto open = std::make_shared<OpenTransfers>(transfers.size() + 1, std::move(ended));
  // Takes first: the other hosts wait for them.
  for (const bool is_sent : {false, true}) {
    for (const Transfer& transfer : transfers) {
      if (transfer.is_sent != is_sent) continue;
      const std::span bytes(call.home->at(transfer.home), transfer.bytes);
      const std::uint64_t tag = number << 44 | transfer.tag;
      const auto end = [open](Peers::Outcome outcome) { open->end(outcome); };
      const bool begins = is_sent ? peers.send(transfer.peer, tag, bytes, end)
                                  : peers.take(transfer.peer, tag, bytes, end);
      if (!begins) end(Peers::Outcome::lost);
    }
  }
  open->end(Peers::Outcome::done);
}

}  // namespace spillway
