#include "apps/report/recent_speed.h"

namespace spillway {
namespace {

constexpr double kWindow_s = 10;
constexpr double kApart_s = 0.05;  // moments that are closer are one

}  // namespace

void RecentSpeed::take(const SessionEvent& event) {
  using Kind = SessionEvent::Kind;
  if (!event.is_of_trial()) return;
  const bool begins = event.kind == Kind::resumed ||
                      (event.kind == Kind::state && event.state == TrialState::running);
  if (!begins && event.kind != Kind::step) return;
  if (event.trial.index() >= moments_.size()) moments_.resize(event.trial.index() + 1);
  auto& moments = moments_[event.trial.index()];
  // While a trial waits it takes no step, so the time does not count.
  if (begins) moments.clear();
  const std::size_t size = moments.size();
  if (size > 1 && event.time_s - moments[size - 2].time_s < kApart_s) moments.pop_back();
  moments.push_back({event.time_s, event.step});
  while (moments.size() > 2 && moments[1].time_s <= event.time_s - kWindow_s) moments.pop_front();
}

std::optional<double> RecentSpeed::steps_per_s(std::size_t trial) const {
  if (trial >= moments_.size() || moments_[trial].empty()) return std::nullopt;
  const Moment &from = moments_[trial].front(), &to = moments_[trial].back();
  if (to.step <= from.step || to.time_s <= from.time_s) return std::nullopt;
  return static_cast<double>(to.step - from.step) / (to.time_s - from.time_s);
}

}  // namespace spillway
