#include "apps/commands/plan_command.h"

#include <ostream>

#include "apps/commands/plan_report.h"

namespace spillway {

ExitCode plan(const PlanOptions& options, std::ostream& out) {
  constexpr double kMostOps = 4e5;  // a few seconds
  PlannedRun run = plan_run(options);
  const RunResult result = run.simulate(kMostOps);
  const Advice advice = run.fits() ? Advice{} : find_remedies(options, run);
  const PlannedTimes times = times_of(run, result);
  const PlanReport report{.run = run,
                          .result = result,
                          .advice = advice,
                          .times = times,
                          .estimated = options.estimate};
  if (options.json) {
    out << to_json(report);
  } else {
    print(out, report);
  }
  return run.fits() ? kDone : kDoesNotFit;
}

}  // namespace spillway
