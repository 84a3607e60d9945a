#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runs/log/run_json.h"

/// How other processes reach the one that trains a run: by files in the folder `requests` of the
/// run. `ID.request` becomes `ID.taken` before it is handled, and `ID.reply` is there once its
/// effect is durable. All are JSON, and none is seen before it is complete.
namespace spillway {

/// The side of the process that has the folder's lock.
class RequestInbox {
 public:
  /// Removes what earlier owners have left, but for requests that still wait.
  explicit RequestInbox(const std::filesystem::path& run_folder);

  struct Request {
    std::string id;
    Json content;
  };
  /// Takes all requests, in the order of their ids. Damaged ones have null as content.
  std::vector<Request> take();
  /// Throws IoError.
  void reply(const Request& request, const Json& reply);

 private:
  std::filesystem::path folder_;
};

/// Sends a request to the owner and waits for its reply. Nothing: there is no owner, and the
/// request was not taken. Throws Error if there is no reply in time, or the owner ended while it
/// handled the request.
std::optional<Json> ask_owner(const std::filesystem::path& run_folder, const Json& request,
                              std::chrono::milliseconds patience);

}  // namespace spillway
