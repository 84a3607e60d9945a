#include "trainer/profile/profile_cache.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "spillway/error.h"
#include "trainer/profile/machine.h"
#include "trainer/profile/numerics.h"
#include "trainer/storage/atomic_file.h"

namespace spillway {
namespace {

template <typename Cost>
std::optional<Cost> find_in(const CostEntries<Cost>& entries, const std::string& key) {
  const auto found = entries.find(key);
  return found == entries.end() ? std::nullopt : std::optional(found->second.cost);
}

/// A difference of loads that makes another measurement worthwhile.
constexpr double kClearlyBusier = 0.1;

constexpr const char* kHost = "host";

/// After a new build, the costs of the old one are of no use.
constexpr std::size_t kMostBuilds = 8;

/// Programs that save take turns.
class FileLock {
 public:
  /// Waits for at most a fifth of a second.
  explicit FileLock(const std::string& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (file_ < 0) return;  // another user's, perhaps; saving goes without
    for (int tries = 0; tries < 20; ++tries) {
      is_taken_ = ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
      if (!is_taken_) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~FileLock() {
    if (file_ >= 0) ::close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  /// By another program.
  bool is_taken() const { return is_taken_; }

 private:
  int file_;
  bool is_taken_ = false;
};

/// The file that this code is in: the program, or a library.
std::filesystem::path file_of_this_code() {
  Dl_info symbol;
  void* library = nullptr;
  const auto here = reinterpret_cast<const void*>(&file_of_this_code);
  if (dladdr1(here, &symbol, &library, RTLD_DL_LINKMAP) != 0) {
    const std::filesystem::path name = static_cast<const link_map*>(library)->l_name;
    std::error_code error;
    if (std::filesystem::exists(name, error)) return name;  // the program has an empty one
  }
  return "/proc/self/exe";
}

}  // namespace

MeasuredAt ProfileCache::Measurement::end() const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.unix_s = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
          .load = std::max(before_, load_())};
}

ProfileCache::ProfileCache(std::filesystem::path file, const std::function<std::string()>& made_by,
                           std::function<double()> load, BusyCosts busy)
    : file_(std::move(file)), load_(std::move(load)) {
  if (file_.empty()) {
    load_ = [] { return 0.0; };  // unused without a file
    return;
  }
  made_by_ = made_by();
  known_ = read()[made_by_];
  if (busy == BusyCosts::drop) drop_busier_measurements();
}

CostsOfBuilds ProfileCache::read() const {
  try {
    if (!std::filesystem::is_regular_file(file_)) return {};  // a pipe would never end
    std::ifstream in(file_, std::ios::binary);
    return parse_costs({std::istreambuf_iterator<char>(in), {}});
  } catch (const std::exception&) {
    return {};
  }
}

void ProfileCache::drop_busier_measurements() {
  std::optional<double> now;
  const auto drop = [&](const char*, auto& entries) {
    std::erase_if(entries, [&](const auto& each) {
      const double then = each.second.at.load;
      if (then < kClearlyBusier) return false;  // whatever the load is now
      if (!now) now = load_();
      return then >= *now + kClearlyBusier;
    });
  };
  for_each_kind(drop, known_);
}

template <typename Cost>
void ProfileCache::add_to(CostEntries<Cost> KnownCosts::*kind, const std::string& key,
                          const Cost& cost, const MeasuredAt& at) {
  if (!unsaved_) unsaved_.emplace();
  for (KnownCosts* costs : {&known_, &*unsaved_}) (costs->*kind)[key] = {cost, at};
}

std::optional<LayerProfile> ProfileCache::find(const std::string& key) const {
  return find_in(known_.layers, key);
}

std::optional<MeasuredAt> ProfileCache::measured_at(const std::string& key) const {
  const auto found = known_.layers.find(key);
  return found == known_.layers.end() ? std::nullopt : std::optional(found->second.at);
}

std::optional<LayerTimes> ProfileCache::find_times(const std::string& key) const {
  return find_in(known_.times, key);
}

std::optional<double> ProfileCache::find_copy_rate(const std::string& kind) const {
  return find_in(known_.copies, kind);
}

std::optional<double> ProfileCache::find_contention(const std::string& key) const {
  return find_in(known_.contentions, key);
}

std::optional<double> ProfileCache::find_op_start(const std::string& key) const {
  return find_in(known_.op_starts, key);
}

std::optional<HostRates> ProfileCache::rates() const { return find_in(known_.rates, kHost); }

void ProfileCache::add(const std::string& key, const LayerProfile& profile, const MeasuredAt& at) {
  add_to(&KnownCosts::layers, key, profile, at);
}

void ProfileCache::add_times(const std::string& key, const LayerTimes& times,
                             const MeasuredAt& at) {
  add_to(&KnownCosts::times, key, times, at);
}

void ProfileCache::add_copy_rate(const std::string& kind, double rate, const MeasuredAt& at) {
  add_to(&KnownCosts::copies, kind, rate, at);
}

void ProfileCache::add_contention(const std::string& key, double contention, const MeasuredAt& at) {
  add_to(&KnownCosts::contentions, key, contention, at);
}

void ProfileCache::add_op_start(const std::string& key, double seconds, const MeasuredAt& at) {
  add_to(&KnownCosts::op_starts, key, seconds, at);
}

void ProfileCache::set_rates(const HostRates& rates, const MeasuredAt& at) {
  add_to(&KnownCosts::rates, kHost, rates, at);
}

void ProfileCache::save() {
  if (file_.empty() || !unsaved_) return;
  try {
    std::error_code error;
    std::filesystem::create_directories(file_.parent_path(), error);
    const FileLock lock(file_.string() + ".lock");
    if (lock.is_taken()) return;
    CostsOfBuilds builds = read();
    for_each_kind(
        [](const char*, auto& saved, auto& unsaved) {
          for (auto& [key, entry] : unsaved) saved.insert_or_assign(key, entry);
        },
        builds[made_by_], *unsaved_);
    drop_oldest(builds, kMostBuilds, made_by_);
    AtomicFile out(file_);
    out.write(to_text(builds));
    out.commit();
    unsaved_.reset();
  } catch (const IoError&) {
  }
}

std::string this_build_and_machine() {
  // Determined once: the file may be replaced.
  static const std::string text = [] {
    std::error_code error;
    const std::filesystem::path file = file_of_this_code();
    const auto size = std::filesystem::file_size(file, error);
    const auto time = std::filesystem::last_write_time(file, error).time_since_epoch().count();
    return fmt::format("program {} {}; processor {}; {}", size, time, processor_name(),
                       at::get_cpu_capability());
  }();
  return text;
}

std::string this_build_and_kernels() {
  const Numerics& here = numerics();
  return fmt::format("{}; numerics {} in {} bytes", this_build_and_machine(), here.xxh3(),
                     here.activation_bytes());
}

}  // namespace spillway
