#include "runs/folder/requests.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>
#include <thread>

#include "core/os/file_system.h"
#include "spillway/error.h"
#include "trainer/storage/atomic_file.h"
#include "trainer/storage/run_lock.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRequest = ".request";
constexpr const char* kTaken = ".taken";
constexpr const char* kReply = ".reply";

fs::path requests_of(const fs::path& run_folder) { return run_folder / "requests"; }

void write_json(const fs::path& file, const Json& json) {
  AtomicFile out(file);
  out.write(to_text(json));
  out.commit();
}

/// Null if the file is missing or damaged.
Json read_json(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json(nullptr) : json;
}

/// Whether the file was there.
bool drop(const fs::path& file) {
  std::error_code error;
  return fs::remove(file, error);
}

/// Ids ascend with time, so that requests are handled in their order.
std::string new_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{:020}-{}-{:08x}", std::chrono::nanoseconds(now).count(), ::getpid(),
                     std::random_device{}());
}

std::vector<fs::path> files_with(const fs::path& folder, const char* extension) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == extension) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

RequestInbox::RequestInbox(const fs::path& run_folder) : folder_(requests_of(run_folder)) {
  for (const char* left : {kTaken, kReply}) {
    for (const fs::path& file : files_with(folder_, left)) drop(file);
  }
}

std::vector<RequestInbox::Request> RequestInbox::take() {
  std::vector<Request> taken;
  for (const fs::path& file : files_with(folder_, kRequest)) {
    fs::path now = file;
    now.replace_extension(kTaken);
    std::error_code error;
    fs::rename(file, now, error);
    if (!error) taken.push_back({file.stem().string(), read_json(now)});  // else it was withdrawn
  }
  return taken;
}

void RequestInbox::reply(const Request& request, const Json& reply) {
  write_json(folder_ / (request.id + kReply), reply);
  drop(folder_ / (request.id + kTaken));
}

std::optional<Json> ask_owner(const fs::path& run_folder, const Json& request,
                              std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kInterval(20);
  const fs::path folder = requests_of(run_folder);
  make_folders(folder);
  const std::string id = new_id();
  const fs::path asked = folder / (id + kRequest), answered = folder / (id + kReply);
  write_json(asked, request);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (true) {
    // In this order: an owner that ends after its reply is no failure.
    const auto owner = holder_of(run_folder);
    const bool is_late = std::chrono::steady_clock::now() >= end;
    if (Json reply = read_json(answered); !reply.is_null()) {
      drop(answered);
      return reply;
    }
    if (!owner || is_late) {
      const bool was_taken = !drop(asked);
      if (!owner && !was_taken) return std::nullopt;
      const std::string what = owner ? fmt::format("{} has not answered within {} s", *owner,
                                                   std::chrono::duration<double>(patience).count())
                                     : "the process that trained the run ended before it answered";
      throw Error(fmt::format("{}; {}", what,
                              was_taken
                                  ? "the call may still take effect, which 'spillway results' "
                                    "shows"
                                  : "the call was withdrawn; try again"));
    }
    std::this_thread::sleep_for(kInterval);
  }
}

}  // namespace spillway
