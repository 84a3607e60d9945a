#include "trainer/hosts/host_words.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spillway/error.h"

namespace spillway {
namespace {

std::vector<std::byte> message_of(HostMessage kind, const nlohmann::json& json) {
  const std::string text = json.dump();
  std::vector<std::byte> message(1 + text.size(), static_cast<std::byte>(kind));
  std::ranges::copy(std::as_bytes(std::span(text)), message.begin() + 1);
  return message;
}

/// Throws std::exception if it has none.
nlohmann::json json_of(std::span<const std::byte> message) {
  const auto* const text = reinterpret_cast<const char*>(message.data());
  return nlohmann::json::parse(text + 1, text + message.size());
}

}  // namespace

std::vector<std::byte> message_of(HostMessage kind) { return {static_cast<std::byte>(kind)}; }

std::vector<std::byte> message_of(const HostWord& word, const std::string& endpoint) {
  return message_of(HostMessage::word, {{"round", word.round},
                                        {"lost", word.lost},
                                        {"begun", word.jobs.begun},
                                        {"steps", word.jobs.steps},
                                        {"must_restart", word.jobs.must_restart},
                                        {"endpoint", endpoint}});
}

std::vector<std::byte> message_of(const HostEndpoints& endpoints) {
  return message_of(HostMessage::next, {{"endpoints", endpoints}});
}

WordFromHost word_of(std::span<const std::byte> message, int size) {
  const auto json = json_of(message);
  WordFromHost heard;
  json.at("round").get_to(heard.word.round);
  json.at("lost").get_to(heard.word.lost);
  json.at("begun").get_to(heard.word.jobs.begun);
  json.at("steps").get_to(heard.word.jobs.steps);
  json.at("must_restart").get_to(heard.word.jobs.must_restart);
  json.at("endpoint").get_to(heard.endpoint);
  for (int host : heard.word.lost) {
    if (host < 0 || host >= size) throw Error("no such host");
  }
  return heard;
}

HostEndpoints endpoints_of(std::span<const std::byte> message) {
  return json_of(message).at("endpoints").get<HostEndpoints>();
}

}  // namespace spillway
