#include "spilling/transfer/copier.h"

#include <memory>
#include <utility>

namespace spillway {

Event Copier::copy(Queue& queue, Link* link, std::byte* to, const std::byte* from, Bytes bytes,
                   Finished finished) {
  const auto begin = std::make_shared<Clock::time_point>();  // shared by two tasks of the queue
  queue.notify([begin] { *begin = Clock::now(); });
  link ? queue.copy_over(*link, to, from, bytes) : queue.copy_async(to, from, bytes);
  Event arrived = queue.record();
  queue.notify([begin, finished = std::move(finished)] { finished(*begin, Clock::now()); });
  return arrived;
}

Event Copier::to_device(std::byte* device, const std::byte* host, Bytes bytes, Finished finished) {
  return copy(device_.host_to_device(), nullptr, device, host, bytes, std::move(finished));
}

Event Copier::from_device(std::byte* device, const std::byte* other, Bytes bytes, Link* link,
                          Finished finished) {
  return copy(device_.from_devices(), link, device, other, bytes, std::move(finished));
}

Event Copier::to_host(std::byte* host, const std::byte* device, Bytes bytes, Finished finished) {
  return copy(device_.device_to_host(), nullptr, host, device, bytes, std::move(finished));
}

}  // namespace spillway
