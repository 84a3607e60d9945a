#include "apps/commands/report_command.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <vector>

#include "apps/page/page.h"
#include "apps/report/report.h"
#include "runs/folder/output_folder.h"
#include "runs/log/event_log.h"
#include "runs/log/metrics_file.h"
#include "runs/log/trial_names.h"
#include "runs/output/run_documents.h"
#include "trainer/storage/atomic_file.h"

namespace spillway {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

ExitCode report(const ReportOptions& options, std::ostream& out) {
  const std::filesystem::path folder(options.folder);
  const auto [logged, state] = read_run_and_state(folder);
  const RunLog& run = logged.run;
  std::vector<std::vector<StepMetrics>> metrics;
  for (const TrialLog& trial : run.trials)
    metrics.push_back(read_metrics(trial_folder(folder, trial.result.name) / "metrics.csv"));
  const Json data = page_data({.run = run,
                               .folder = folder.string(),
                               .state = to_string(state),
                               .metrics = std::move(metrics),
                               .trace = text_of(folder / "trace.json")});
  const std::filesystem::path file =
      options.file.empty() ? folder / kReportFile : std::filesystem::path(options.file);
  AtomicFile page(file);
  page.write(html_page(data));
  page.commit();
  out << "Report: " << file.string() << "\n";
  return kDone;
}

}  // namespace spillway
