#include "apps/page/trace_picture.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace spillway {
namespace {

constexpr double kResolution = 1.0 / 3000;  // of the whole time

struct Span {
  double from_s = 0, to_s = 0;
  std::size_t trial = 0;
};

/// The spans of one thread of the real run.
struct Queue {
  std::string name;
  std::vector<Span> spans;
};

struct RealRun {
  std::map<int, Queue> queues;         ///< by thread
  std::map<std::string, Json> memory;  ///< points by counter
};

void take_span(RealRun& run, const Json& event, const std::map<std::string, std::size_t>& trials) {
  const auto trial = trials.find(event.at("args").at("trial").get<std::string>());
  if (trial == trials.end()) return;
  const double from_s = 1e-6 * event.at("ts").get<double>();
  run.queues[event.at("tid")].spans.push_back(
      {from_s, from_s + 1e-6 * event.at("dur").get<double>(), trial->second});
}

/// Throws Json::exception.
RealRun real_run(const Json& events, const std::map<std::string, std::size_t>& trials) {
  constexpr int kRealProcess = 1;
  RealRun run;
  for (const Json& event : events) {
    if (event.at("pid") != kRealProcess) continue;
    const std::string kind = event.at("ph");
    if (kind == "M" && event.at("name") == "thread_name") {
      run.queues[event.at("tid")].name = event.at("args").at("name");
    } else if (kind == "X") {
      take_span(run, event, trials);
    } else if (kind == "C") {
      run.memory[event.at("name")].push_back(
          {1e-6 * event.at("ts").get<double>(), event.at("args").at("used bytes")});
    }
  }
  return run;
}

/// Joins spans of one trial between which less than `gap_s` lies.
std::vector<Span> joined(std::vector<Span> spans, double gap_s) {
  std::ranges::stable_sort(spans, {}, &Span::from_s);
  std::vector<Span> made;
  for (const Span& span : spans) {
    if (!made.empty() && made.back().trial == span.trial &&
        span.from_s - made.back().to_s < gap_s) {
      made.back().to_s = std::max(made.back().to_s, span.to_s);
    } else {
      made.push_back(span);
    }
  }
  return made;
}

Json timeline_of(std::map<int, Queue> queues) {
  double end_s = 0;
  for (const auto& [thread, queue] : queues) {
    for (const Span& span : queue.spans) end_s = std::max(end_s, span.to_s);
  }
  Json rows = Json::array(), spans = Json::array();
  for (auto& [thread, queue] : queues) {
    if (queue.spans.empty()) continue;
    for (const Span& span : joined(std::move(queue.spans), end_s * kResolution))
      spans.push_back({rows.size(), span.from_s, span.to_s, span.trial});
    rows.push_back(queue.name);
  }
  if (rows.empty()) return nullptr;
  return {{"rows", std::move(rows)}, {"spans", std::move(spans)}, {"end_s", end_s}};
}

}  // namespace

TracePicture picture_of(const std::string& trace,
                        const std::map<std::string, std::size_t>& trials) {
  try {
    RealRun run = real_run(Json::parse(trace).at("traceEvents"), trials);
    TracePicture picture{.timeline = timeline_of(std::move(run.queues))};
    for (auto& [name, points] : run.memory)
      picture.memory.push_back({{"name", name}, {"points", std::move(points)}});
    return picture;
  } catch (const Json::exception&) {
    return {};
  }
}

}  // namespace spillway
