#include "apps/terminal/failure.h"

#include <new>
#include <utility>

#include "core/base/config_check.h"
#include "runs/log/run_json.h"

namespace spillway {
namespace {

template <typename Kind>
const Kind* as(const std::exception& error) {
  return dynamic_cast<const Kind*>(&error);
}

std::string as_message(const std::string& text) {
  std::string message = "spillway: ";
  for (const char c : text) message += c == '\n' ? "\n  " : std::string(1, c);
  return message + "\n";
}

}  // namespace

Failure failure_of(const std::exception& error) {
  const std::string message = error.what();
  if (as<UsageError>(error)) return {"usage", kUsage, message, {}};
  if (const auto* all = as<ConfigErrors>(error))
    return {"configuration", kUsage, message, all->all};
  if (const auto* one = as<ConfigError>(error)) return {"configuration", kUsage, message, {*one}};
  if (as<DoesNotFit>(error)) return {"does_not_fit", kDoesNotFit, message, {}};
  if (as<std::bad_alloc>(error)) {
    return {"does_not_fit",
            kDoesNotFit,
            "this machine is out of memory; use smaller budgets or smaller virtual nodes",
            {}};
  }
  if (as<InUse>(error)) return {"in_use", kUsage, message, {}};
  if (as<IoError>(error)) return {"io", kTrialFailed, message, {}};
  if (as<CorruptData>(error)) return {"damaged", kUsage, message, {}};
  if (as<NewerFormat>(error)) return {"newer_format", kUsage, message, {}};
  return {as<Error>(error) ? "failed" : "internal", kTrialFailed, message, {}};
}

std::string to_text(const Failure& failure) {
  if (failure.findings.empty()) return as_message(failure.message);
  std::string text;
  for (const ConfigError& finding : failure.findings) text += as_message(finding.what());
  return text;
}

std::string to_json(const Failure& failure) {
  Json findings = Json::array();
  for (const ConfigError& finding : failure.findings) {
    findings.push_back({{"field", finding.field.empty() ? Json(nullptr) : Json(finding.field)},
                        {"line", finding.line > 0 ? Json(finding.line) : Json(nullptr)},
                        {"problem", finding.problem}});
  }
  return to_text(Json{{"error",
                       {{"kind", failure.kind},
                        {"exit_code", static_cast<int>(failure.code)},
                        {"message", failure.message},
                        {"findings", std::move(findings)}}}});
}

}  // namespace spillway
