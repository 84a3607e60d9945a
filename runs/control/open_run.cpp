#include "runs/control/open_run.h"

#include "trainer/config/batch_split.h"

namespace spillway {

SessionEvent Place::operator()(SessionEvent event) const {
  if (event.trial.valid()) event.trial = JobId(trials.at(event.trial.index()));
  event.sequence += sequence;
  event.time_s += time_s;
  return event;
}

std::optional<RunResult> simulate(const Session& session, const std::vector<Trial>& trials) {
  if (trials.front().config.session.hosts.meets_again) return std::nullopt;
  constexpr double kMaxOps = 1e5;  // two seconds
  double ops = 0;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const auto& train = trials[t].config.train;
    ops += 2.0 * session.plan(JobId(t)).num_shards * virtual_nodes_of(train) *
           static_cast<double>(train.max_steps);
  }
  if (ops > kMaxOps) return std::nullopt;
  return session.simulate();
}

}  // namespace spillway
