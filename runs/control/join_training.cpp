#include "runs/control/join_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ostream>
#include <thread>
#include <utility>

#include "runs/config/embedded.h"
#include "runs/folder/prepare.h"
#include "trainer/hosts/host_backend.h"
#include "trainer/hosts/invitation.h"
#include "trainer/storage/run_lock.h"

namespace spillway {
namespace {

/// The trials that host 0 trains, in its order.
std::vector<Trial> announced(const Session& session, const std::vector<Trial>& all) {
  std::vector<Trial> trials;
  for (const std::string& name : session.announced_trials()) {
    const auto found = std::ranges::find(all, name, &Trial::name);
    if (found == all.end()) {
      throw Error(
          fmt::format("host 0 trains trial {}, which this host's configuration does not "
                      "have; give all hosts the same file",
                      name));
    }
    trials.push_back(*found);
  }
  return trials;
}

/// Until all trials have ended.
void train(Session& session, const std::function<bool()>& wants_stop) {
  constexpr double kInterval_s = 0.1;
  session.start();
  bool stopped = false;
  while (!session.wait_for(kInterval_s)) {
    if (!std::exchange(stopped, stopped || wants_stop()) && stopped) session.stop();
  }
  session.finish();
}

/// What this host knows before it is invited. Throws ConfigErrors.
HostsConfig own_hosts(const std::vector<std::string>& overrides) {
  YamlNode tree{.kind = YamlNode::Kind::map};
  for (const std::string& text : overrides) {
    if (text.starts_with("hosts.") || text.starts_with("hosts=")) apply_override(tree, text);
  }
  Findings findings;
  const HostsConfig hosts = read_hosts(tree, findings);
  findings.throw_if_any();
  return hosts;
}

/// Throws HostLost.
JoinedTraining train_with_others(const std::vector<Trial>& all, const RunResources& resources,
                                 const std::function<bool()>& wants_stop, std::ostream& log) {
  Findings findings;
  const RunConfig& config = all.front().config;
  const HostsConfig& hosts = config.session.hosts;
  const auto session =
      make_session(run_session(all.front(), resources.pilot_cache), all.front(), findings);
  findings.throw_if_any();
  log << fmt::format("joined {} as host {} of {}; host 0 writes the outputs\n", hosts.endpoint,
                     hosts.number, hosts.size)
      << std::flush;
  const auto trials = announced(*session, all);
  if (trials.empty()) return {};
  auto configs = run_configs(trials, OutputFolder(config.output_dir), findings);
  findings.throw_if_any();
  const auto misfits = submit_all(*session, std::move(configs), trials);
  require_fit(*session, config.session, misfits, resources.machine, log);
  train(*session, wants_stop);
  return {session->result(), session->next_hosts()};
}

}  // namespace

std::vector<Trial> invited_trials(const std::string& endpoint,
                                  const std::vector<std::string>& overrides) {
  std::vector<std::string> all{"hosts.endpoint=" + endpoint};
  all.insert(all.end(), overrides.begin(), overrides.end());
  const HostsConfig own = own_hosts(all);
  Findings findings;
  auto trials = trials_of_document(invitation_at(own), all, findings);
  findings.throw_if_any();
  HostsConfig& hosts = trials.front().config.session.hosts;
  hosts.trust_network = own.trust_network;  // host 0 does not decide whom this host trusts
  require_backend(hosts, trials.front().config.session.has_gpus());  // before others wait for it
  hosts = take_place(hosts);
  return trials;
}

JoinedTraining join_training(const std::vector<Trial>& all, const RunResources& resources,
                             const std::function<bool()>& wants_stop, std::ostream& log) {
  try {
    return train_with_others(all, resources, wants_stop, log);
  } catch (const HostLost&) {
    auto next = all.front().config.session.hosts.without_host_0();
    if (!next) throw;
    return {.next = std::move(next)};
  }
}

std::string next_host_text(const HostsConfig& next) {
  return fmt::format("hosts meet again at {}; this host goes on as host {} of {}\n", next.endpoint,
                     next.number, next.size);
}

void take_run_of_host_0(const OutputFolder& folder, const HostsConfig& next) {
  constexpr std::chrono::milliseconds kRetry(100);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(next.timeout_s);
  for (;;) {
    try {
      RunLock lock = folder.lock();
      if (!lock.follows_crash()) {
        throw Error(fmt::format("{}; {}", kHost0Stopped, kRestart));
      }
      lock.keep_mark();
      return;
    } catch (const InUse&) {
      if (std::chrono::steady_clock::now() > end) throw;
    }
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace spillway
