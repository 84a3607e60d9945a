#include "trainer/runtime/moment_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "spillway/error.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

constexpr std::byte kReady{1};

/// Differs from those of exchanges, see tag_of() in host_exchange.cpp.
std::uint64_t moment_tag(std::uint64_t number, std::uint64_t word) {
  return number << 44 | std::uint64_t{1} << 43 | word;
}
std::uint64_t ready_tag(std::uint64_t number) { return moment_tag(number, 0); }
std::uint64_t segment_tag(std::uint64_t number, int param, int moment, std::int64_t segment) {
  constexpr unsigned kMomentBits = 1, kSegmentBits = 20;
  assert(segment < std::int64_t{1} << kSegmentBits);
  std::uint64_t word = static_cast<std::uint64_t>(param) + 1;
  word = word << kMomentBits | static_cast<std::uint64_t>(moment);
  return moment_tag(number, word << kSegmentBits | static_cast<std::uint64_t>(segment));
}

std::int64_t num_segments(ElementRange elements) {
  return (elements.size() + kMomentSegment - 1) / kMomentSegment;
}

/// Elements of segment `number` of a part.
ElementRange segment_of(ElementRange part, std::int64_t number) {
  const std::int64_t begin = part.begin + number * kMomentSegment;
  return {begin, std::min(begin + kMomentSegment, part.end)};
}

/// Calls `what(param, part)` for the parts of all parameters that have moments.
template <typename What>
void for_each_part(const Layout& layout, const What& what) {
  for (int p = 0; p < static_cast<int>(layout.params.size()); ++p) {
    for (const HostPart& part : layout.params[at(p)].parts) {
      if (part.norms != kNoHome) what(p, part);
    }
  }
}

}  // namespace

struct RemoteMoments::Waiting {
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

struct RemoteMoments::Taken {
  std::vector<float> values;
  std::optional<Peers::Outcome> outcome;  // guarded by Waiting::mutex
};

RemoteMoments::RemoteMoments(Peers& peers, std::uint64_t number,
                             std::shared_ptr<const JobPlan> plan)
    : peers_(peers),
      number_(number),
      plan_(std::move(plan)),
      waiting_(std::make_shared<Waiting>()) {}

void RemoteMoments::begin(const std::function<void()>& ready) {
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
  for (int host = 1; host < peers_.size(); ++host) {
    const std::span word(&words->words[static_cast<std::size_t>(host)], 1);
    if (!peers_.take(host, ready_tag(number_), word, ended)) ended(Peers::Outcome::lost);
  }
  ended(Peers::Outcome::done);  // host 0
}

void RemoteMoments::read(int param, int moment, ElementRange elements, std::byte* into) {
  for (const HostPart& part : plan_->layout.params[at(param)].parts) {
    const ElementRange wanted{std::max(elements.begin, part.elements.begin),
                              std::min(elements.end, part.elements.end)};
    if (wanted.size() <= 0) continue;
    const auto skipped = static_cast<Bytes>(wanted.begin - elements.begin);
    read_from(part, param, moment, wanted, into + skipped * sizeof(float));
  }
}

void RemoteMoments::read_from(const HostPart& part, int param, int moment, ElementRange elements,
                              std::byte* into) {
  Segment& segment = segments_[{param, moment, part.host}];
  while (elements.size() > 0) {
    const std::int64_t number = (elements.begin - part.elements.begin) / kMomentSegment;
    if (segment.number < number) segment = take(part, param, moment, number);
    const ElementRange there = segment_of(part.elements, number);
    const std::int64_t end = std::min(elements.end, there.end);
    const auto bytes = static_cast<Bytes>(end - elements.begin) * sizeof(float);
    std::memcpy(into, segment.taken->values.data() + (elements.begin - there.begin), bytes);
    into += bytes;
    elements.begin = end;
    if (end == there.end) segment.taken.reset();
  }
}

RemoteMoments::Segment RemoteMoments::take(const HostPart& part, int param, int moment,
                                           std::int64_t number) {
  const auto taken = std::make_shared<Taken>();
  taken->values.resize(static_cast<std::size_t>(segment_of(part.elements, number).size()));
  const auto ended = [taken, waiting = waiting_](Peers::Outcome outcome) {
    const MutexLock lock(waiting->mutex);
    taken->outcome = outcome;
    waiting->changed.notify_all();
  };
  bool begins = false;
  {
    const MutexLock posting(waiting_->posting);
    begins = !waiting_->has_been_dropped() &&
             peers_.take(part.host, segment_tag(number_, param, moment, number),
                         std::as_writable_bytes(std::span(taken->values)), ended);
  }
  const MutexLock lock(waiting_->mutex);
  if (begins) {
    waiting_->changed.wait(waiting_->mutex, [&]() SPILLWAY_REQUIRES(waiting_->mutex) {
      return waiting_->is_dropped || taken->outcome;
    });
  }
  if (taken->outcome == Peers::Outcome::done) return {number, taken};
  throw Error(
      fmt::format("the moments of host {} cannot be read, because it is lost or a step is repeated",
                  part.host));
}

void RemoteMoments::end() {
  const auto segments = std::exchange(segments_, {});
  for_each_part(plan_->layout, [&](int param, const HostPart& part) {
    if (part.host == 0) return;
    for (int moment = 0; moment < plan_->layout.moments; ++moment) {
      const auto latest = segments.find({param, moment, part.host});
      std::int64_t next = latest == segments.end() ? 0 : latest->second.number + 1;
      try {
        for (; next < num_segments(part.elements); ++next) take(part, param, moment, next);
      } catch (const Error&) {  // the host sends nothing any more
      }
    }
  });
}

bool RemoteMoments::is_dropped() const { return waiting_->has_been_dropped(); }

void RemoteMoments::drop() {
  {
    const MutexLock posting(waiting_->posting);
    const MutexLock lock(waiting_->mutex);
    waiting_->is_dropped = true;
    waiting_->changed.notify_all();
  }
  waiting_->tell_ready();
}

MomentSender::MomentSender(Peers& peers, std::uint64_t number, std::shared_ptr<const JobPlan> plan)
    : peers_(peers), number_(number), plan_(std::move(plan)) {}

void MomentSender::begin(const Home& home, const std::function<void(std::size_t param)>& sent,
                         std::function<void()> ended) {
  const Layout& layout = plan_->layout;
  /// Parameters whose moments have not been sent, and the word before.
  const auto params_left = std::make_shared<std::atomic<std::size_t>>(layout.params.size() + 1);
  const auto end_one = [this, params_left, ended = std::move(ended)] {
    if (--*params_left > 0) return;
    ended();
    give_up();
  };
  const MutexLock posting(posting_);
  const auto send = [&](std::uint64_t tag, std::span<const std::byte> bytes,
                        const std::function<void()>& then) SPILLWAY_REQUIRES(posting_) {
    const bool begins =
        !is_dropped_ && peers_.send(0, tag, bytes, [then](Peers::Outcome) { then(); });
    if (!begins) then();
  };
  send(ready_tag(number_), std::span(&kReady, 1), end_one);
  for (std::size_t p = 0; p < layout.params.size(); ++p) {
    const Layout::ParamPlace& place = layout.params[p];
    const HostPart* const own = place.own_part();
    const bool has_moments = own && own->norms != kNoHome;
    const std::int64_t segments = has_moments ? num_segments(place.own) : 0;
    const auto left = std::make_shared<std::atomic<std::int64_t>>(segments * layout.moments + 1);
    const auto end_segment = [left, sent, p, end_one] {
      if (--*left > 0) return;
      sent(p);
      end_one();
    };
    for (int moment = 0; has_moments && moment < layout.moments; ++moment) {
      const std::byte* const first = home.at(layout.moment(static_cast<int>(p), moment));
      for (std::int64_t s = 0; s < segments; ++s) {
        const ElementRange elements = segment_of(place.own, s);
        const auto skipped = static_cast<Bytes>(elements.begin - place.own.begin);
        send(segment_tag(number_, static_cast<int>(p), moment, s),
             {first + skipped * sizeof(float), static_cast<Bytes>(elements.size()) * sizeof(float)},
             end_segment);
      }
    }
    end_segment();
  }
}

void MomentSender::prepare() {
  const MutexLock posting(posting_);
  is_dropped_ = false;
  const MutexLock lock(mutex_);
  is_busy_ = true;
}

void MomentSender::give_up() {
  const MutexLock lock(mutex_);
  is_busy_ = false;
  changed_.notify_all();
}

void MomentSender::drop() {
  const MutexLock posting(posting_);
  is_dropped_ = true;
}

bool MomentSender::is_busy() {
  const MutexLock lock(mutex_);
  return is_busy_;
}

void MomentSender::wait() {
  const MutexLock lock(mutex_);
  changed_.wait(mutex_, [this]() SPILLWAY_REQUIRES(mutex_) { return !is_busy_; });
}

}  // namespace spillway
