#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runs/log/run_json.h"
#include "runs/log/run_log.h"
#include "runs/log/step_metrics.h"

/// The report of a run as one HTML page, which needs no network and draws itself from its data.
namespace spillway {

/// page.html; `%DATA%` stands for the data.
extern const char* const kPageTemplate;

struct PageInput {
  const RunLog& run;
  std::string folder;                             ///< of the run, to be shown
  std::string state;                              ///< of the run
  std::vector<std::vector<StepMetrics>> metrics;  ///< by trial
  std::string trace;                              ///< trace.json; empty: there is none
};

/// What the page draws: the trials from the best on, their curves, the queues of the devices.
Json page_data(const PageInput& input);

/// The page with the data inlined, so that no text in it can end its element.
std::string html_page(const Json& data);

}  // namespace spillway
