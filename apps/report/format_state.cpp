#include "apps/report/format_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace spillway {
namespace {

std::string place_of(const TraceSpan& span) {
  return span.device.valid() ? fmt::format("device {}", span.device.value) : "host";
}

std::string text_of(const TraceSpan& span) {
  if (span.track == TraceSpan::Track::to_device) return span.name + " to the device";
  if (span.track == TraceSpan::Track::from_devices) return span.name + " from another device";
  if (span.track == TraceSpan::Track::to_host) return span.name + " to the host";
  return span.name;
}

std::string text_of(const std::vector<int>& lanes) {
  std::string text;
  for (const int device : lanes) {
    text += (text.empty() ? "" : ", ") + (device < 0 ? "-" : fmt::to_string(device));
  }
  return text.empty() ? "-" : text;
}

Table devices_of(const SessionState& state) {
  Table table({"device", "kind", "state", "in use", "budget"});
  for (std::size_t d = 0; d < state.devices.size(); ++d) {
    const SessionState::Device& device = state.devices[d];
    table.add({fmt::to_string(d), device.kind, device.state, format_bytes(device.used_bytes),
               format_bytes(device.budget_bytes)});
  }
  return table;
}

Table trials_of(const SessionState& state) {
  Table table({"trial", "state", "step", "devices", "waits for"});
  for (const SessionState::Trial& trial : state.trials) {
    if (has_ended(trial.state)) continue;
    table.add({trial.name, to_string(trial.state),
               fmt::format("{}/{}", trial.step, trial.max_steps), text_of(trial.lanes),
               trial.waits_for.empty() ? "-" : trial.waits_for});
  }
  return table;
}

Table work_of(const SessionState& state) {
  Table table({"in flight", "where", "trial", "after step", "bytes", "for"});
  for (const TraceSpan& span : state.under_way) {
    table.add({text_of(span), place_of(span), state.trials[span.job.index()].name,
               fmt::to_string(span.step), span.bytes > 0 ? format_bytes(span.bytes) : "-",
               fmt::format("{:.3f} s", std::max(0.0, state.time_s - span.started_s))});
  }
  return table;
}

}  // namespace

std::string format_state(const SessionState& state, std::size_t width) {
  const auto is_over = [](const auto& trial) { return has_ended(trial.state); };
  std::ostringstream text;
  set_table_width(text, width);
  text << fmt::format("State after {:.1f} s:\n", state.time_s);
  devices_of(state).print(text);
  trials_of(state).print(text);
  if (const auto ended = std::ranges::count_if(state.trials, is_over); ended > 0) {
    text << "  " << ended << " of " << state.trials.size() << " trials have ended\n";
  }
  if (state.under_way.empty()) {
    text << "  nothing is in flight\n";
  } else {
    work_of(state).print(text);
  }
  return text.str();
}

}  // namespace spillway
