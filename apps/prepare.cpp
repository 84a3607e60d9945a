#include "apps/prepare.h"

#include <utility>

#include "apps/trial_factory.h"
#include "apps/yaml_path.h"

namespace spillway {

std::vector<Trial> read_trials(const std::string& file, const std::vector<std::string>& overrides,
                               Findings& findings) {
  YamlNode tree;
  try {
    tree = read_yaml_file(file);
  } catch (const IoError& error) {
    throw ConfigError("", 0, error.what());
  }
  for (const auto& text : overrides) apply_override(tree, text);
  return expand_trials(tree, findings);
}

std::unique_ptr<Session> make_session(SessionConfig config, const Trial& any, Findings& findings) {
  for (const char* needed :
       {"devices", "activation_share", "host_memory", "home_path", "scheduling", "sweep"}) {
    if (findings.concern(needed)) return nullptr;
  }
  std::unique_ptr<Session> session;
  run_noting(any.tree, findings, [&] { session = std::make_unique<Session>(std::move(config)); });
  return session;
}

std::vector<std::optional<DoesNotFit>> submit_all(Session& session,
                                                  std::vector<TrialConfig> configs,
                                                  const std::vector<Trial>& trials) {
  Findings findings;
  std::vector<std::optional<DoesNotFit>> misfits(configs.size());
  for (std::size_t t = 0; t < configs.size(); ++t) {
    try {
      run_noting(trials[t].tree, findings, [&] { session.submit(std::move(configs[t])); });
    } catch (const DoesNotFit& error) {
      misfits[t] = error;
    }
  }
  findings.throw_if_any();
  return misfits;
}

}  // namespace spillway
