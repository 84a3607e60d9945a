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

Session make_session(SessionConfig config, const Trial& any) {
  try {
    return Session(std::move(config));
  } catch (const ConfigError& error) {
    Findings findings;
    note(error, any.tree, findings);
    throw ConfigErrors(findings.all());
  }
}

std::vector<std::optional<DoesNotFit>> submit_all(Session& session,
                                                  std::vector<TrialConfig> configs,
                                                  const std::vector<Trial>& trials) {
  Findings findings;
  std::vector<std::optional<DoesNotFit>> misfits(configs.size());
  for (std::size_t t = 0; t < configs.size(); ++t) {
    try {
      session.submit(std::move(configs[t]));
    } catch (const ConfigError& error) {
      note(error, trials[t].tree, findings);
    } catch (const DoesNotFit& error) {
      misfits[t] = error;
    }
  }
  findings.throw_if_any();
  return misfits;
}

}  // namespace spillway
