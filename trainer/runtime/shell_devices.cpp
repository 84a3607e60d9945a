#include <algorithm>
#include <chrono>
#include <utility>

#include "spillway/error.h"
#include "spillway/units.h"
#include "trainer/runtime/shell.h"

namespace spillway {
namespace {

Clock::duration allowance(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Writes the first bytes of an arena by copies, as planned ranges are written.
void touch(Device& device, const DeviceArena& arena, Bytes bytes) {
  if (bytes == 0) return;
  const Bytes piece = std::min(bytes, 1_MiB);
  const std::shared_ptr<DeviceMemory> zeros = device.allocate_host(piece);  // shared: until the end
  Queue& queue = device.host_to_device();
  for (Bytes at = 0; at < bytes; at += piece) {
    const Bytes part = std::min(piece, bytes - at);
    queue.copy_async(arena.at(at, part), zeros->data(), part);
  }
  queue.notify([zeros] {});
  const Event touched = queue.record();
  device.compute().wait(touched);
  device.from_devices().wait(touched);
}

}  // namespace

DeviceId Shell::take_in(std::unique_ptr<DevicePart> part) {
  const DeviceId id(devices_.size());
  // Its op may end as soon as it is abandoned, so the reason is posted first.
  part->watchdog = std::make_unique<Watchdog>(*io_, [this, id, device = part->device] {
    on_thread([this, id] { lose(id, "it gave no sign of life in time"); });
    device->abandon();
  });
  devices_.push_back(std::move(part));
  return id;
}

void Shell::launch(ActionId id, Flight flight) {
  ++launched_;
  flight.launched_s = seconds(Clock::now());
  if (flight.device.valid()) {
    DevicePart& on = part(flight.device);
    ++on.running;
    ++on.expected;
    on.planned_s += flight.planned_s;
    watch(on);
    if (flight.peer.valid()) ++part(flight.peer).running;  // its arena stays
  }
  flights_[id] = std::move(flight);
}

/// Work that ended on a failed device may be wrong, even if it reported success.
void Shell::note_failure(Device& device, Done& done) {
  try {
    device.check();
  } catch (const DeviceLost& lost) {
    done.lost = true;
    done.error = lost.why;
  }
}

/// Bytes that were copied from a failed device are invalid: the loss is posted before the copy's
/// end.
void Shell::require_good(DeviceId id, Device& device) {
  Done state;
  note_failure(device, state);
  if (state.lost) on_thread([this, id, why = state.error] { lose(id, why); });
}

void Shell::post(DeviceId device, Done done, OpRunner::Keep keep, std::vector<double*> numbers) {
  landing(
      [this, device, done = std::move(done), keep = std::move(keep), numbers = std::move(numbers)] {
        const bool is_lost = !flights_.contains(done.id);
        if (keep && !is_lost && !done.lost) keep();
        for (double* number : numbers) part(device).numbers.give_back(number);
        if (device.valid()) {
          --part(device).running;
          release(part(device));
        }
        if (is_lost) return;
        if (done.lost && device.valid()) return lose(device, done.error);
        land(done);
        if (device.valid()) notice_shrinking(device);
      });
}

void Shell::reported(const Flight& flight) {
  if (flight.path >= 0) paths_[at(flight.path)].planned_s -= flight.path_s;
  if (flight.peer.valid()) {
    --part(flight.peer).running;
    release(part(flight.peer));
  }
  DevicePart& on = part(flight.device);
  --on.expected;
  on.planned_s -= flight.planned_s;
  watch(on);
}

/// Every start or end of an action on the device is a sign of life.
void Shell::watch(DevicePart& on) {
  if (on.expected == 0) {
    on.planned_s = 0;
    return on.watchdog->rest();
  }
  const Patience& patience = options_.patience;
  const double allowance_s = std::max(patience.least_s, patience.factor * on.planned_s);
  on.watchdog->expect(allowance(allowance_s));
}

void Shell::lose(DeviceId id, const std::string& why) {
  DevicePart& lost = part(id);
  if (lost.gone) return;
  lost.device->abandon();
  lost.why = why;
  std::erase_if(held_, [&](const Done& done) { return flights_.at(done.id).device == id; });
  std::vector<ActionId> unreported;
  for (const auto& [action, flight] : flights_) {
    if (flight.device == id) unreported.push_back(action);
  }
  Actions actions;
  engine_.lose_device(id, actions);
  carry_out(actions);
  const double now_s = seconds(Clock::now());
  for (ActionId action : unreported) {
    report({.id = action, .started_s = now_s, .finished_s = now_s, .lost = true});
  }
}

void Shell::remove_device(DeviceId device, std::string why) {
  on_thread([this, device, why = std::move(why)] { leave(device, why); });
}

void Shell::leave(DeviceId id, const std::string& why) {
  if (part(id).leaves) return;
  part(id).leaves = true;
  part(id).why = why;
  Actions actions;
  engine_.remove_device(id, actions);
  carry_out(actions);
}

/// A device that shrank leaves; it may join again with its new budget.
void Shell::notice_shrinking(DeviceId id) {
  const DevicePart& on = part(id);
  if (on.leaves || on.device->budget() >= on.budget) return;
  leave(id, "its budget shrank to " + format_bytes(on.device->budget()));
}

void Shell::perform(const DeviceLeft& left) {
  DevicePart& gone = part(left.device);
  gone.leaves = gone.gone = true;
  release(gone);
  publish();
  observer_.on_device_left(left.device, left.lost, gone.why);
}

/// Frees the memory once nothing can access it any more.
void Shell::release(DevicePart& left) {
  if (!left.gone || left.running > 0) return;
  left.graphs = {};
  left.arena.reset();
}

void Shell::add_device(Device& device, Bytes touched) {
  on_thread([this, touched, part = std::make_unique<DevicePart>(device)]() mutable {
    joining_.push_back({.part = std::move(part)});
    Joining& joining = joining_.back();
    joining.part->watchdog =
        std::make_unique<Watchdog>(*io_, [device = joining.part->device] { device->abandon(); });
    joining.part->watchdog->expect(allowance(options_.patience.least_s));
    warm(*joining.part, touched, [this, &joining](const std::string& failure) {
      joining.failure = failure;
      joining.ready = true;
      join_ready();
    });
  });
}

/// Calls `then` on this thread, with the reason of a failure, or with an empty string.
void Shell::warm(DevicePart& part, Bytes touched,
                 std::function<void(const std::string& failure)> then) {
  ++launched_;
  ++part.running;
  Device& device = *part.device;
  touch(device, *part.arena, std::min(touched, part.arena->size()));
  const auto failure = std::make_shared<std::string>("it did not answer");  // shared: by a queue
  device.compute().enqueue([this, &device, failure] {
    try {
      runner_.warm(device);
      failure->clear();
    } catch (...) {
      *failure = current_reason();
    }
  });
  device.compute().notify([this, &part, failure, then = std::move(then)] {
    landing([this, &part, failure, then] {
      --part.running;
      release(part);
      then(*failure);
    });
  });
}

/// Devices join in the order in which they were added, so that their numbers follow from it.
void Shell::join_ready() {
  while (!joining_.empty() && joining_.front().ready) {
    Joining joined = std::move(joining_.front());
    joining_.pop_front();
    Actions actions;
    engine_.add_device(joined.part->budget, actions);
    const DeviceId id = take_in(std::move(joined.part));
    publish();
    observer_.on_device_joined(id);
    carry_out(actions);
    if (!joined.failure.empty()) lose(id, joined.failure);
  }
}

}  // namespace spillway
