#include "runs/output/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runs/log/run_json.h"

namespace spillway {
namespace {

constexpr int kQueues = 4;  // of a device

/// One process of the trace: four threads per device, then as many threads of the host's pool as
/// are needed so that the spans of a thread never overlap.
class Process {
 public:
  Process(Json& events, int pid, const char* name) : events_(events), pid_(pid) {
    name_it("process_name", 0, name);
  }

  void add(const std::vector<Trial>& trials, const std::vector<TraceSpan>& spans) {
    int num_devices = 0;
    for (const auto& span : spans) {
      if (span.device.valid()) num_devices = std::max(num_devices, queue_of(span) / kQueues + 1);
    }
    name_queues(num_devices);
    std::vector<TraceSpan> ordered = spans;
    std::ranges::stable_sort(ordered, {}, &TraceSpan::started_s);
    for (const auto& span : ordered) {
      const bool on_host = span.track == TraceSpan::Track::host_pool;
      add(trials, span, on_host ? num_devices * kQueues + worker_for(span) : queue_of(span));
    }
    for (std::size_t w = 0; w < worker_free_s_.size(); ++w)
      name_it("thread_name", num_devices * kQueues + static_cast<int>(w), "host pool");
  }

 private:
  static int queue_of(const TraceSpan& span) {
    return static_cast<int>(span.device.index()) * kQueues + static_cast<int>(span.track);
  }

  void name_queues(int num_devices) {
    constexpr std::array<const char*, kQueues> kQueueNames{"compute", "to device", "to host",
                                                           "from devices"};
    for (int queue = 0; queue < num_devices * kQueues; ++queue) {
      name_it("thread_name", queue,
              fmt::format("device {} {}", queue / kQueues, kQueueNames[at(queue % kQueues)]));
    }
  }

  int worker_for(const TraceSpan& span) {
    std::size_t worker = 0;
    while (worker < worker_free_s_.size() && worker_free_s_[worker] > span.started_s) ++worker;
    if (worker == worker_free_s_.size()) worker_free_s_.push_back(0);
    worker_free_s_[worker] = span.finished_s;
    return static_cast<int>(worker);
  }

  void add(const std::vector<Trial>& trials, const TraceSpan& span, int thread) {
    Json arguments{{"trial", trials[span.job.index()].name}, {"step", span.step}};
    if (span.bytes > 0) arguments["bytes"] = span.bytes;
    events_.push_back({{"name", span.name},
                       {"cat", trials[span.job.index()].name},
                       {"ph", "X"},
                       {"pid", pid_},
                       {"tid", thread},
                       {"ts", 1e6 * span.started_s},
                       {"dur", 1e6 * (span.finished_s - span.started_s)},
                       {"args", std::move(arguments)}});
  }

  void name_it(const char* what, int thread, const std::string& name) {
    events_.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", pid_}, {"tid", thread}, {"args", {{"name", name}}}});
  }

  Json& events_;
  const int pid_;
  std::vector<double> worker_free_s_;
};

void add_memory(Json& events, int pid, const std::vector<MemorySample>& memory) {
  const auto add = [&](double time_s, const std::string& place, Bytes bytes) {
    events.push_back({{"name", fmt::format("{} memory", place)},
                      {"ph", "C"},
                      {"pid", pid},
                      {"ts", 1e6 * time_s},
                      {"args", {{"used bytes", bytes}}}});
  };
  for (const MemorySample& sample : memory) {
    for (std::size_t d = 0; d < sample.device_bytes.size(); ++d)
      add(sample.time_s, fmt::format("device {}", d), sample.device_bytes[d]);
    add(sample.time_s, "host", sample.host_bytes);
  }
}

}  // namespace

std::string chrome_trace(const std::vector<Trial>& trials, const std::vector<TraceSpan>& real,
                         const std::vector<TraceSpan>& planned,
                         const std::vector<MemorySample>& memory) {
  Json events = Json::array();
  Process(events, 1, "real").add(trials, real);
  add_memory(events, 1, memory);
  Process(events, 2, "planned").add(trials, planned);
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

}  // namespace spillway
