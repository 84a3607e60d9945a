#include "trainer/hosts/host_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/system/system_error.hpp>
#include <charconv>
#include <cstdlib>

#include "core/base/config_check.h"
#include "spillway/error.h"

namespace spillway {
namespace {

using boost::asio::ip::udp;

std::optional<Endpoint> endpoint_of(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  const char* const end = text.data() + text.size();
  Endpoint endpoint{.host = text.substr(0, colon)};
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, endpoint.port);
  const bool is_port = error == std::errc() && stop == end && endpoint.port > 0;
  return is_port && endpoint.port < 65536 ? std::optional(endpoint) : std::nullopt;
}

/// Whether a name or address means this machine alone, or means nothing, which others report.
bool is_loopback(const std::string& host) {
  boost::asio::io_context context;
  boost::system::error_code error;
  const auto found = udp::resolver(context).resolve(host, "", error);
  return error || std::ranges::all_of(found, [](const auto& entry) {
           return entry.endpoint().address().is_loopback();
         });
}

std::string value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

Endpoint checked_endpoint(const HostsConfig& config) {
  const auto endpoint = endpoint_of(config.endpoint);
  ConfigCheck check;
  check.require(endpoint.has_value(), "hosts.endpoint",
                fmt::format("is '{}', must be HOST:PORT, where host 0 listens", config.endpoint));
  check.require(config.start_size <= config.size, "hosts.start_size",
                fmt::format("is {}, must be at most hosts.size, {}; lower it, or raise hosts.size",
                            config.start_size, config.size));
  check.require(config.start_size == 0 || config.start_size >= config.min_size, "hosts.start_size",
                fmt::format("is {}, must be at least hosts.min_size, {}", config.start_size,
                            config.min_size));
  check.require(config.timeout_s > 0, "hosts.timeout_s",
                fmt::format("is {:g}, must be above 0", config.timeout_s));
  check.finish();
  return *endpoint;
}

std::string address_of_host(const HostsConfig& config) {
  if (!config.address.empty()) return config.address;
  const Endpoint endpoint = checked_endpoint(config);
  try {
    boost::asio::io_context context;
    udp::socket socket(context);
    const auto found = udp::resolver(context).resolve(endpoint.host, fmt::to_string(endpoint.port));
    socket.connect(found.begin()->endpoint());
    return socket.local_endpoint().address().to_string();
  } catch (const boost::system::system_error& error) {
    throw ConfigError("hosts.endpoint", 0,
                      fmt::format("is {}, to which this machine finds no way ({}); check the "
                                  "name, or set hosts.address",
                                  config.endpoint, error.code().message()));
  }
}

bool has_store_of_torchrun(const std::string& endpoint) {
  return value_of("TORCHELASTIC_USE_AGENT_STORE") == "True" &&
         endpoint == value_of("MASTER_ADDR") + ":" + value_of("MASTER_PORT");
}

void require_trust(const HostsConfig& config, const std::string& host) {
  if (!config.token_file.empty() || config.trust_network) return;
  if (is_loopback(host) && !has_store_of_torchrun(config.endpoint)) return;
  throw ConfigError(
      "hosts.token_file", 0,
      fmt::format(
          "is empty, and whoever reaches {} could read the training and change it; make a "
          "file with a secret by '(umask 077; openssl rand -hex 32 > token)', copy it to "
          "all hosts and name it here, or set hosts.trust_network: true in a private network",
          host));
}

std::optional<Token> token_of(const HostsConfig& config) {
  if (config.token_file.empty()) return std::nullopt;
  return read_token(config.token_file);
}

}  // namespace spillway
