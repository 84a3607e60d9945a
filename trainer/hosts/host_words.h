#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "scheduler/fleet/fleet.h"

/// The messages of hosts that train together. An endpoint is where a host would listen as host 0.
namespace spillway {

/// The first byte of a message.
enum class HostMessage : std::uint8_t {
  parting = 1,  ///< this host is done
  alive = 2,    ///< this host lives
  word = 3,     ///< its jobs rest: a HostWord and its endpoint
  next = 4,     ///< all meet again: the endpoint of each host
};
using HostEndpoints = std::map<int, std::string>;  ///< by number

std::vector<std::byte> message_of(HostMessage kind);
std::vector<std::byte> message_of(const HostWord& word, const std::string& endpoint);
std::vector<std::byte> message_of(const HostEndpoints& endpoints);

struct WordFromHost {
  HostWord word;
  std::string endpoint;
};
/// Throws std::exception if the message has another form, or names hosts that are not among `size`.
WordFromHost word_of(std::span<const std::byte> message, int size);
/// Throws std::exception if the message has another form.
HostEndpoints endpoints_of(std::span<const std::byte> message);

}  // namespace spillway
