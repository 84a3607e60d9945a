#include "trainer/runtime/state_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "core/device/kernels.h"
#include "spillway/error.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

constexpr std::byte kReady{1};

/// Differs from those of exchanges, see tag_of() in host_exchange.cpp.
std::uint64_t state_tag(std::uint64_t number, std::uint64_t word) {
  return number << 44 | std::uint64_t{1} << 43 | word;
}
std::uint64_t ready_tag(std::uint64_t number) { return state_tag(number, 0); }
std::uint64_t numbers_tag(std::uint64_t number) { return state_tag(number, 1); }
/// Of the segment that begins with element `first`. A host may send several parts of a parameter.
std::uint64_t segment_tag(std::uint64_t number, int param, int plane, std::int64_t first) {
  constexpr unsigned kPlaneBits = 2, kChunkBits = 21;
  const auto chunk = static_cast<std::uint64_t>(first) / kernels::kNormChunk;
  assert(chunk >> kChunkBits == 0);
  std::uint64_t word = static_cast<std::uint64_t>(param) + 1;
  word = word << kPlaneBits | static_cast<std::uint64_t>(plane - kMasters);
  return state_tag(number, word << kChunkBits | chunk);
}

std::int64_t num_segments(ElementRange elements) {
  return (elements.size() + kStateSegment - 1) / kStateSegment;
}

/// Elements of segment `number` of a part.
ElementRange segment_of(ElementRange part, std::int64_t number) {
  const std::int64_t begin = part.begin + number * kStateSegment;
  return {begin, std::min(begin + kStateSegment, part.end)};
}

/// The planes of a parameter's state that are sent.
std::vector<int> planes_of(const Layout& layout, int param, SentState what, bool is_rescue) {
  const Layout::ParamPlace& place = layout.params[at(param)];
  std::vector<int> planes;
  if (place.divides_master || is_rescue) planes.push_back(kMasters);
  const bool has_moments = !place.parts.empty() && place.parts.front().norms != kNoHome;
  for (int m = 0; what == SentState::all && has_moments && m < layout.moments; ++m) {
    planes.push_back(m);
  }
  return planes;
}

/// Where a host that keeps an element has it in a plane.
const std::byte* place_of(const Layout& layout, const Home& home, int param, int plane,
                          std::int64_t element) {
  const Layout::ParamPlace& place = layout.params[at(param)];
  const bool is_master = plane == kMasters;
  const std::int64_t before = element - (is_master ? place.held : place.kept).begin;
  const Bytes begin = is_master ? place.home : layout.moment(param, plane);
  return home.at(begin) + static_cast<Bytes>(before) * sizeof(float);
}

}  // namespace

std::optional<int> StateRoute::sender_of(const HostPart& part) const {
  if (part.host == reader || part.shadow == reader) return std::nullopt;
  return gone.contains(part.host) ? part.shadow : part.host;
}

bool StateRoute::reaches_all(const Layout& layout) const {
  const auto is_left = [&](int host) { return host >= 0 && !gone.contains(host); };
  return std::ranges::all_of(layout.params, [&](const Layout::ParamPlace& place) {
    return std::ranges::all_of(place.parts, [&](const HostPart& part) {
      return is_left(part.host) || is_left(part.shadow);
    });
  });
}

void send_numbers(Peers& peers, std::uint64_t number, int to, std::vector<std::byte> numbers) {
  const auto sent = std::make_shared<std::vector<std::byte>>(std::move(numbers));
  peers.send(to, numbers_tag(number), *sent, [sent](Peers::Outcome) {});
}

void take_numbers(Peers& peers, std::uint64_t number, int from, std::size_t bytes,
                  const std::function<void(std::vector<std::byte>)>& taken) {
  const auto numbers = std::make_shared<std::vector<std::byte>>(bytes);
  peers.take(from, numbers_tag(number), *numbers, [numbers, taken](Peers::Outcome outcome) {
    if (outcome == Peers::Outcome::done) taken(std::move(*numbers));
  });
}

struct RemoteState::Waiting {
  Mutex posting;  // nothing is taken after drop(); locked before `mutex`
  Mutex mutex;
  CondVar changed;
  bool is_dropped SPILLWAY_GUARDED_BY(mutex) = true;
  std::function<void()> ready SPILLWAY_GUARDED_BY(mutex);

  bool has_been_dropped() {
    const MutexLock lock(mutex);
    return is_dropped;
  }

  void tell_ready() {
    std::function<void()> call;
    {
      const MutexLock lock(mutex);
      call = std::exchange(ready, {});
    }
    if (call) call();
  }
};

struct RemoteState::Taken {
  std::vector<float> values;
  std::optional<Peers::Outcome> outcome;  // guarded by Waiting::mutex
};

RemoteState::RemoteState(Peers& peers, std::uint64_t number, std::shared_ptr<const JobPlan> plan)
    : peers_(peers),
      number_(number),
      plan_(std::move(plan)),
      waiting_(std::make_shared<Waiting>()) {}

void RemoteState::begin(SentState what, const std::function<void()>& ready) {
  what_ = what;
  has_failed_ = false;
  struct Words {
    std::atomic<int> left;
    std::vector<std::byte> words;
  };
  const auto words = std::make_shared<Words>();
  words->left = peers_.size();
  words->words.resize(static_cast<std::size_t>(peers_.size()));
  {
    const MutexLock lock(waiting_->mutex);
    waiting_->ready = ready;
    waiting_->is_dropped = false;
  }
  const auto ended = [words, waiting = waiting_](Peers::Outcome) {
    if (--words->left == 0) waiting->tell_ready();
  };
  for (int host = 0; host < peers_.size(); ++host) {
    const std::span word(&words->words[static_cast<std::size_t>(host)], 1);
    const bool sends = host != route_.reader && !route_.gone.contains(host);
    const bool begins = sends && peers_.take(host, ready_tag(number_), word, ended);
    if (!begins) ended(Peers::Outcome::lost);
  }
}

void RemoteState::read(int param, int plane, ElementRange elements, std::byte* into) {
  for (const HostPart& part : plan_->layout.params[at(param)].parts) {
    const ElementRange wanted = overlap(elements, part.elements);
    if (wanted.size() == 0) continue;
    const auto skipped = static_cast<Bytes>(wanted.begin - elements.begin);
    read_from(part, param, plane, wanted, into + skipped * sizeof(float));
  }
}

void RemoteState::read_from(const HostPart& part, int param, int plane, ElementRange elements,
                            std::byte* into) {
  Segment& segment = segments_[{param, plane, part.host}];
  while (elements.size() > 0) {
    const std::int64_t number = (elements.begin - part.elements.begin) / kStateSegment;
    if (segment.number < number) segment = take(part, param, plane, number);
    const ElementRange there = segment_of(part.elements, number);
    const std::int64_t end = std::min(elements.end, there.end);
    const auto bytes = static_cast<Bytes>(end - elements.begin) * sizeof(float);
    std::memcpy(into, segment.taken->values.data() + (elements.begin - there.begin), bytes);
    into += bytes;
    elements.begin = end;
    if (end == there.end) segment.taken.reset();
  }
}

RemoteState::Segment RemoteState::take(const HostPart& part, int param, int plane,
                                       std::int64_t number) {
  const int sender = route_.sender_of(part).value();
  const ElementRange elements = segment_of(part.elements, number);
  const auto taken = std::make_shared<Taken>();
  taken->values.resize(static_cast<std::size_t>(elements.size()));
  const auto ended = [taken, waiting = waiting_](Peers::Outcome outcome) {
    const MutexLock lock(waiting->mutex);
    taken->outcome = outcome;
    waiting->changed.notify_all();
  };
  bool begins = false;
  {
    const MutexLock posting(waiting_->posting);
    begins = !waiting_->has_been_dropped() &&
             peers_.take(sender, segment_tag(number_, param, plane, elements.begin),
                         std::as_writable_bytes(std::span(taken->values)), ended);
  }
  const MutexLock lock(waiting_->mutex);
  if (begins) {
    waiting_->changed.wait(waiting_->mutex, [&]() SPILLWAY_REQUIRES(waiting_->mutex) {
      return waiting_->is_dropped || taken->outcome;
    });
  }
  if (taken->outcome == Peers::Outcome::done) return {number, taken};
  has_failed_ = true;
  throw Error(fmt::format(
      "the state of host {} cannot be read, because it is lost or a step is repeated", sender));
}

void RemoteState::end() {
  const auto segments = std::exchange(segments_, {});
  const Layout& layout = plan_->layout;
  const auto take_rest = [&](const HostPart& part, int param, int plane) {
    const auto latest = segments.find({param, plane, part.host});
    std::int64_t next = latest == segments.end() ? 0 : latest->second.number + 1;
    try {
      for (; next < num_segments(part.elements); ++next) take(part, param, plane, next);
    } catch (const Error&) {  // the host sends nothing any more
    }
  };
  for (int p = 0; p < static_cast<int>(layout.params.size()); ++p) {
    const std::vector<int> planes = planes_of(layout, p, what_, route_.is_rescue);
    for (const HostPart& part : layout.params[at(p)].parts) {
      if (!route_.sender_of(part)) continue;
      for (int plane : planes) take_rest(part, p, plane);
    }
  }
}

bool RemoteState::is_dropped() const { return waiting_->has_been_dropped(); }

void RemoteState::drop() {
  {
    const MutexLock posting(waiting_->posting);
    const MutexLock lock(waiting_->mutex);
    waiting_->is_dropped = true;
    waiting_->changed.notify_all();
  }
  waiting_->tell_ready();
}

StateSender::StateSender(Peers& peers, std::uint64_t number, std::shared_ptr<const JobPlan> plan)
    : peers_(peers), number_(number), plan_(std::move(plan)) {}

void StateSender::begin(SentState what, const Home& home,
                        const std::function<void(std::size_t param)>& sent,
                        std::function<void(bool is_lost)> ended) {
  const Layout& layout = plan_->layout;
  struct Progress {
    std::atomic<std::size_t> left;  // parameters whose state has not been sent, and the word before
    std::atomic<bool> is_lost = false;
  };
  const auto progress = std::make_shared<Progress>();
  progress->left = layout.params.size() + 1;
  const auto end_one = [this, progress, ended = std::move(ended)] {
    if (--progress->left > 0) return;
    ended(progress->is_lost);
    give_up();
  };
  const MutexLock posting(posting_);
  const auto send = [&](std::uint64_t tag, std::span<const std::byte> bytes,
                        const std::function<void()>& then) SPILLWAY_REQUIRES(posting_) {
    const auto end = [progress, then](Peers::Outcome outcome) {
      if (outcome != Peers::Outcome::done) progress->is_lost = true;
      then();
    };
    if (is_dropped_ || !peers_.send(route_.reader, tag, bytes, end)) end(Peers::Outcome::lost);
  };
  send(ready_tag(number_), std::span(&kReady, 1), end_one);
  for (int p = 0; p < static_cast<int>(layout.params.size()); ++p) {
    const std::vector<int> planes = planes_of(layout, p, what, route_.is_rescue);
    std::vector<HostPart> parts;
    std::int64_t segments = 0;
    for (const HostPart& part : layout.params[at(p)].parts) {
      if (route_.sender_of(part) != peers_.number()) continue;
      parts.push_back(part);
      segments += num_segments(part.elements);
    }
    const auto left =
        std::make_shared<std::atomic<std::int64_t>>(segments * std::ssize(planes) + 1);
    const auto end_segment = [left, sent, p, end_one] {
      if (--*left > 0) return;
      sent(at(p));
      end_one();
    };
    const auto send_part = [&](const HostPart& part, int plane) SPILLWAY_REQUIRES(posting_) {
      for (std::int64_t s = 0; s < num_segments(part.elements); ++s) {
        const ElementRange elements = segment_of(part.elements, s);
        send(segment_tag(number_, p, plane, elements.begin),
             {place_of(layout, home, p, plane, elements.begin),
              static_cast<Bytes>(elements.size()) * sizeof(float)},
             end_segment);
      }
    };
    for (const HostPart& part : parts) {
      for (int plane : planes) send_part(part, plane);
    }
    end_segment();
  }
}

void StateSender::prepare() {
  const MutexLock posting(posting_);
  is_dropped_ = false;
  const MutexLock lock(mutex_);
  is_busy_ = true;
}

void StateSender::give_up() {
  const MutexLock lock(mutex_);
  is_busy_ = false;
  changed_.notify_all();
}

void StateSender::drop() {
  const MutexLock posting(posting_);
  is_dropped_ = true;
}

bool StateSender::is_busy() {
  const MutexLock lock(mutex_);
  return is_busy_;
}

void StateSender::wait() {
  const MutexLock lock(mutex_);
  changed_.wait(mutex_, [this]() SPILLWAY_REQUIRES(mutex_) { return !is_busy_; });
}

}  // namespace spillway
