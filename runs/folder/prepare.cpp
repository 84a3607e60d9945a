#include "runs/folder/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <system_error>
#include <utility>

#include "runs/config/yaml_path.h"
#include "runs/folder/trial_factory.h"
#include "trainer/config/host_groups.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

/// About 20 MB in memory and in the file.
constexpr std::size_t kMaxTraceSpans = 100'000;

/// An absolute path; resolves links in the part that exists.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path : found;
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto [in_folder, in_path] = std::ranges::mismatch(folder, path);
  return in_folder == folder.end();
}

/// Throws ConfigError if the run would train on its own files or replace its data.
void require_apart(const fs::path& output_dir, const RunConfig& config) {
  std::vector<std::string> names = config.data.paths;
  names.insert(names.end(), config.data.eval_paths.begin(), config.data.eval_paths.end());
  for (const std::string& name : names) {
    const fs::path data = resolved(config.data_root / name), output = resolved(output_dir);
    std::error_code error;
    if (fs::is_directory(data, error) && is_inside(output, data)) {
      throw ConfigError(
          "output_dir", 0,
          fmt::format("'{}' lies inside data.path '{}', so the run would train on its own files; "
                      "choose an output_dir outside of it, or list the data files themselves",
                      output_dir.string(), name));
    }
    if (is_inside(data, output)) {
      throw ConfigError("data.path", 0,
                        fmt::format("'{}' lies inside output_dir '{}', which belongs to the run; "
                                    "move the data elsewhere, or choose another output_dir",
                                    name, output_dir.string()));
    }
  }
}

using Misfits = std::vector<std::optional<DoesNotFit>>;

bool has_any(const Misfits& misfits) {
  return std::ranges::any_of(misfits, [](const auto& misfit) { return misfit.has_value(); });
}

/// Throws DoesNotFit for the largest trial that does not fit, if any.
void require_none(const Misfits& misfits, std::ostream& log) {
  const auto needed = [](const auto& misfit) { return misfit ? misfit->needed : 0; };
  if (!has_any(misfits)) return;
  const auto num = std::ranges::count_if(misfits, [](const auto& m) { return m.has_value(); });
  log << num << " of " << misfits.size()
      << " trials do not fit; 'spillway plan' tries what would help; the largest needs:\n";
  throw DoesNotFit(**std::ranges::max_element(misfits, {}, needed));
}

std::vector<TrialPlan> plans_of(const Session& session, std::size_t num_trials) {
  std::vector<TrialPlan> plans;
  for (std::size_t t = 0; t < num_trials; ++t) plans.push_back(session.plan(JobId(t)));
  return plans;
}

/// Lists the devices that trials do not use, each once.
void report_declined(const std::vector<TrialPlan>& plans, std::ostream& log) {
  std::set<std::string> reported;
  for (const TrialPlan& plan : plans) {
    for (const auto& sentence : plan.declined) {
      if (reported.insert(sentence).second) log << sentence << "\n";
    }
  }
}

/// Finds the steps of trials that are given in epochs.
void resolve_epochs(std::vector<Trial>& trials, const YamlNode& tree, Findings& findings) {
  if (!findings.empty() || std::ranges::none_of(trials, has_epochs)) return;
  TrialFactory factory;
  for (Trial& trial : trials) {
    if (!has_epochs(trial)) continue;
    const auto steps = factory.steps_of_epochs(trial);
    if (!steps) return;  // whoever makes the trials says why
    trial.config.train.max_steps = *steps;
  }
  const std::int64_t first = trials.front().config.train.max_steps;
  const bool are_alike = std::ranges::all_of(
      trials, [&](const Trial& trial) { return trial.config.train.max_steps == first; });
  for (Trial& trial : trials) {
    if (are_alike) trial.config.num_train_epochs = 0;
  }
  check_early_stopping(trials, tree, findings);
}

/// Reads the models that are in files, each once. A file decides how a batch is divided.
void read_models(std::vector<Trial>& trials, const YamlNode& tree, Findings& findings) {
  if (std::ranges::none_of(trials, has_model_file)) return;
  std::map<std::string, ExportedInfo> read;
  for (Trial& trial : trials) {
    RunConfig& config = trial.config;
    if (!has_model_file(trial) || config.torch.path.empty()) continue;
    run_noting(trial.tree, findings, [&] {
      try {
        ExportedInfo& info = read[config.torch.path];
        if (info.name.empty()) info = exported_info(config.data_root / config.torch.path);
        config.torch.info = info;
      } catch (const Error& error) {
        throw ConfigError("model.path", 0, error.what());
      }
    });
    divide_batch(config.train, config.torch.info);
  }
  if (!findings.concern("model")) check_metric(trials, tree, findings);
}

/// Whether trials of a new run may share devices.
bool may_share(const std::vector<Trial>& trials) {
  for (const Trial& trial : trials) {
    for (const char* key : {"scheduling.sharing", "train.data_parallel", "train.max_data_parallel",
                            "train.lane_groups", "train.autoscale", "train.strategy"}) {
      if (find_at(trial.tree, key) != nullptr) return false;
    }
  }
  return trials.size() > 1 && trials.front().config.session.devices.size() > 1;
}

/// The shares for activations to try in turn. The default of GPUs is a quarter.
std::vector<double> activation_shares_of(const SessionConfig& config) {
  const bool has_one = config.activation_share > 0 || !config.has_gpus() || config.hosts.several();
  if (has_one) return {config.activation_share};
  return {0, 0.5, 0.75, kMostActivations, 0.1};
}

bool lack_device_memory(const Misfits& misfits) {
  return std::ranges::any_of(
      misfits, [](const auto& misfit) { return misfit && misfit->tier == Tier::device; });
}

/// Whether memory and disks hold the state of all trials at once.
bool fit_at_once(const SubmittedRun& run, const HostMemory& machine) {
  if (has_any(run.misfits)) return false;
  const RunConfig& config = run.trials.front().config;
  const auto plans = plans_of(*run.session, run.trials.size());
  Bytes homes = shared_bytes_of(plans);
  for (const TrialPlan& plan : plans) homes += plan.home_bytes;
  return homes <= config.session.host_memory &&
         memory_need(config.session, plans).total() <= machine.total &&
         std::ranges::all_of(disk_use(config, plans), &DiskUse::fits);
}

/// Of two keys that exclude each other the later one counts.
YamlNode with_overrides(YamlNode tree, const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) {
    remove_alternative(tree, text.substr(0, text.find('=')));
    apply_override(tree, text);
  }
  return tree;
}

YamlNode read_tree(const std::string& file, const std::vector<std::string>& overrides) {
  try {
    return with_overrides(read_yaml_file(file), overrides);
  } catch (const IoError& error) {
    throw ConfigError("", 0, error.what());
  }
}

/// What a host gets that joins by hand. It sees the same folders.
std::string invitation_of(RunConfig config) {
  config = from_anywhere(std::move(config));
  config.output_dir = fs::absolute(config.output_dir).string();
  config.session.hosts.address.clear();
  config.session.hosts.token_file.clear();  // each host has read it already
  return to_yaml(config);
}

}  // namespace

RunConfig from_anywhere(RunConfig config) {
  const auto here = fs::current_path();
  config.data_root = here / config.data_root;
  if (!config.session.offload_path.empty())
    config.session.offload_path = here / config.session.offload_path;
  if (!config.session.hosts.token_file.empty())
    config.session.hosts.token_file = here / config.session.hosts.token_file;
  return config;
}

void require_first_host(const RunConfig& config) {
  const HostsConfig& hosts = config.session.hosts;
  if (hosts.number == 0) return;
  throw ConfigError(
      "hosts.number", 0,
      fmt::format("is {}, but host 0 alone has the run; 'spillway train' and 'spillway "
                  "join' train as another host",
                  hosts.number));
}

std::vector<Trial> trials_of_document(const std::string& text,
                                      const std::vector<std::string>& overrides,
                                      Findings& findings) {
  return trials_of(with_overrides(parse_yaml(text), overrides), findings);
}

std::vector<Trial> read_trials(const std::string& file, const std::vector<std::string>& overrides,
                               Findings& findings, const std::optional<std::string>& output_dir) {
  YamlNode tree = read_tree(file, overrides);
  if (output_dir) set_at(tree, "output_dir", {.kind = YamlNode::Kind::scalar, .text = *output_dir});
  return trials_of(tree, findings);
}

Trial read_first_trial(const std::string& file, const std::vector<std::string>& overrides) {
  Findings ignored;
  const YamlNode tree = read_tree(file, overrides);
  Trial first = expand_trials(tree, ignored).front();
  return has_epochs(first) ? trials_of(tree, ignored).front() : first;
}

std::vector<Trial> trials_of(const YamlNode& tree, Findings& findings) {
  auto trials = expand_trials(tree, findings);
  read_models(trials, tree, findings);
  resolve_epochs(trials, tree, findings);
  return trials;
}

std::unique_ptr<Session> make_session(SessionConfig config, const Trial& any, Findings& findings) {
  for (const char* needed : {"devices", "links", "numerics", "activation_share", "host_memory",
                             "offload_path", "scheduling", "hosts", "sweep"}) {
    if (findings.concern(needed)) return nullptr;
  }
  // The others, which have the same problems, will not come.
  if (config.hosts.several()) findings.throw_if_any();
  std::unique_ptr<Session> session;
  run_noting(any.tree, findings, [&] { session = std::make_unique<Session>(std::move(config)); });
  return session;
}

std::vector<TrialConfig> run_configs(const std::vector<Trial>& trials, const OutputFolder& folder,
                                     Findings& findings) {
  std::vector<TrialConfig> configs;
  TrialFactory factory;
  for (const auto& trial : trials) {
    run_noting(trial.tree, findings, [&] { require_apart(folder.path(), trial.config); });
    TrialConfig made = factory.make(trial, findings);
    made.client_id = trial.name;
    made.weights_file = folder.weights_file(trial.name);
    made.checkpoint = trial.config.checkpoint;
    if (made.checkpoint.keep > 0) made.checkpoint.folder = folder.checkpoints(trial.name);
    configs.push_back(std::move(made));
  }
  return configs;
}

SessionConfig run_session(const Trial& any, const fs::path& pilot_cache) {
  SessionConfig config = any.config.session;
  config.max_trace_spans = kMaxTraceSpans;
  config.wait_for_devices = false;  // no command adds devices
  config.pilot_cache = pilot_cache;
  require_endpoint(config.hosts);
  if (!config.hosts.several()) return config;
  config.hosts.invitation = invitation_of(any.config);
  if (any.config.checkpoint.keep > 0) {
    config.hosts.run_folder = OutputFolder(any.config.output_dir).path();
  } else if (config.hosts.size == 1) {
    throw ConfigError("hosts.start_size", 0,
                      "lets others join, which needs checkpoints; set it to 0, or checkpoint.keep "
                      "to 1 or more");
  }
  return config;
}

std::vector<std::optional<DoesNotFit>> submit_all(Session& session,
                                                  std::vector<TrialConfig> configs,
                                                  const std::vector<Trial>& trials) {
  Findings findings;
  std::vector<std::optional<DoesNotFit>> misfits(configs.size());
  const bool is_of_hosts = trials.front().config.session.hosts.several();
  std::vector<std::string> names;
  for (const TrialConfig& config : configs) names.push_back(config.client_id);
  session.announce_trials(names);
  for (std::size_t t = 0; t < configs.size(); ++t) {
    try {
      run_noting(trials[t].tree, findings, [&] { session.submit(std::move(configs[t])); });
    } catch (const DoesNotFit& error) {
      misfits[t] = error;
    }
    // The other hosts do not go on without a trial.
    if (is_of_hosts && (misfits[t] || !findings.empty())) break;
  }
  findings.throw_if_any();
  return misfits;
}

SubmittedRun submit_new_run(std::vector<Trial> trials, const std::vector<TrialConfig>& configs,
                            SessionConfig config, const HostMemory& machine, Findings findings) {
  SubmittedRun run{.trials = std::move(trials), .session = nullptr, .misfits = {}};
  const auto submit = [&](SharingKind sharing, double activation_share) {
    run.session.reset();  // its devices
    for (Trial& trial : run.trials) {
      trial.config.session.sharing = sharing;
      trial.config.session.activation_share = activation_share;
    }
    config.sharing = sharing;
    config.activation_share = activation_share;
    run.session = make_session(config, run.trials.front(), findings);
    findings.throw_if_any();
    run.misfits = submit_all(*run.session, configs, run.trials);
  };
  const SharingKind given = config.sharing;
  const bool shares = !config.hosts.several() && may_share(run.trials);
  const SharingKind first = shares ? SharingKind::fill : given;
  const std::vector<double> activation_shares = activation_shares_of(config);
  for (const double share : activation_shares) {
    submit(first, share);
    if (!lack_device_memory(run.misfits)) break;
  }
  if (lack_device_memory(run.misfits) && activation_shares.size() > 1) {
    submit(first, activation_shares.front());
  }
  if (shares && !fit_at_once(run, machine)) {
    submit(given, config.activation_share);  // one device for each
  }
  return run;
}

void require_fit(const Session& session, const SessionConfig& config, const Misfits& misfits,
                 const HostMemory& machine, std::ostream& log) {
  require_none(misfits, log);
  session.check();
  const auto plans = plans_of(session, misfits.size());
  const MemoryNeed need = memory_need(config, plans);
  if (need.total() > machine.total) log << "'spillway plan' tries what would help\n";
  require_memory(need, machine);
  if (const std::string warning = warning_of_memory(need, machine); !warning.empty())
    log << "spillway: " << warning << "\n";
  report_declined(plans, log);
}

}  // namespace spillway
