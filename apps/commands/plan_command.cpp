#include "apps/commands/plan_command.h"

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "apps/plan/plan_report.h"

namespace spillway {

ExitCode plan(const PlanOptions& options, std::ostream& out) {
  constexpr double kMostOps = 4e5;  // a few seconds
  PlanInput input = options;
  const auto add = [&](const std::vector<std::string>& overrides) {
    input.overrides.insert(input.overrides.end(), overrides.begin(), overrides.end());
  };
  std::optional<LargestModel> largest;
  if (options.largest) {
    largest = find_largest_model(input, options.most_step_s);
    add(largest->overrides);
  }
  std::optional<FoundStrategy> found;
  if (!options.search.file.empty()) found = find_strategy(input, options.search);
  if (found) add(found->overrides);
  PlannedRun run = plan_run(input);
  const RunResult result = run.simulate(kMostOps);
  run.session.reset();  // frees the devices, on which remedies are tried
  const Advice advice = run.fits() ? Advice{} : find_remedies(input, run);
  const PlannedTimes times = times_of(run, result);
  const PlanReport report{.run = run,
                          .result = result,
                          .advice = advice,
                          .times = times,
                          .largest = largest ? &*largest : nullptr,
                          .found = found ? &*found : nullptr,
                          .estimated = options.estimate};
  if (options.json) {
    out << to_json(report);
  } else {
    print(out, report);
  }
  return run.fits() ? kDone : kDoesNotFit;
}

}  // namespace spillway
