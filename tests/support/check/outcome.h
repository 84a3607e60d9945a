#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "spillway/session.h"

namespace spillway::testing {

/// Everything that a trial computes and shows: weights and running statistics by their hash,
/// losses, evaluations, gradient norms. Moments are not shown; each weight of a later step depends
/// on them, so a trial that runs some more steps compares them too.
struct Outcome {
  TrialResult trial;
  std::vector<double> norms;  ///< of the gradient, one a committed step
};

/// After the run.
inline Outcome outcome_of(const Session& session, JobId id) {
  Outcome outcome{session.result().trials.at(id.index()), {}};
  for (const SessionEvent& event : session.poll(0, 0)) {
    if (event.kind != SessionEvent::Kind::step || event.trial != id) continue;
    outcome.norms.push_back(event.gradient_norm);
  }
  return outcome;
}

/// " losses from number 3: 2.25 of 6, 2.5 of 6;", or nothing if they are equal.
template <typename Value>
std::string difference(const std::string& of, const std::vector<Value>& a,
                       const std::vector<Value>& b) {
  if (a == b) return "";
  const auto [first, other] = std::ranges::mismatch(a, b);
  const auto shown = [](const auto& values, auto value) {
    return (value == values.end() ? "none" : ::testing::PrintToString(*value)) + " of " +
           std::to_string(values.size());
  };
  return " " + of + " from number " + std::to_string(first - a.begin() + 1) + ": " +
         shown(a, first) + ", " + shown(b, other) + ";";
}

/// Describes what is not bit-identical; empty: nothing.
inline std::string difference(const Outcome& a, const Outcome& b) {
  for (const Outcome* each : {&a, &b}) {
    const TrialResult& trial = each->trial;
    if (trial.state != TrialState::done) return trial.name + " is not done: " + trial.reason + ";";
    if (trial.weights_xxh3.size() != 32) return trial.name + " has no hash of its weights;";
  }
  std::string found;
  if (a.trial.weights_xxh3 != b.trial.weights_xxh3) found += " weights or statistics;";
  found += difference("losses", a.trial.losses, b.trial.losses);
  found += difference("evaluations", a.trial.eval_losses, b.trial.eval_losses);
  found += difference("metrics", a.trial.eval_metrics, b.trial.eval_metrics);
  found += difference("gradient norms", a.norms, b.norms);
  if (a.norms.size() != static_cast<std::size_t>(a.trial.steps)) found += " a norm is missing;";
  return found;
}

}  // namespace spillway::testing
