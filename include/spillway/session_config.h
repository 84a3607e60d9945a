#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spillway/choices.h"
#include "spillway/device_config.h"
#include "spillway/units.h"

namespace spillway {

/// Early stopping, in steps; see scheduler/elastic/early_stopping.h. The decisions follow from
/// losses and the order of submission alone, whatever trains where and when.
struct EarlyTerminate {
  std::int64_t min_iter = 1;  ///< the first rung, at least 1
  int eta = 3;  ///< at least 2: 1 / eta of the trials continue, for eta times as many steps
  EarlyTerminateKind type = EarlyTerminateKind::hyperband;  ///< the rule
  int brackets = 1;  ///< of hyperband, at least 1; the first rung of the next is eta times as far
  int max_concurrent_trials = 8;  ///< of asha and median, at least 1: the others wait to begin
  std::int64_t interval = 0;      ///< of median and pbt: steps from rung to rung; 0: min_iter
  double quantile = 0.25;         ///< of pbt: part of the trials that take over, at most 0.5
  std::uint64_t seed = 1;         ///< of pbt: of what it draws
  /// final_loss: mean training loss since the rung before. The others: of an evaluation there.
  MetricKind metric = MetricKind::eval_loss;
  std::string own_metric;  ///< a metric of the models by name, in place of `metric`; empty: none
  MetricGoal goal = MetricGoal::minimize;  ///< values that are not finite are always the worst
  /// Whether trials are evaluated at rungs.
  bool evaluates() const { return !own_metric.empty() || metric != MetricKind::final_loss; }
  /// By what trials are compared.
  std::string metric_name() const { return own_metric.empty() ? to_string(metric) : own_metric; }
  bool operator==(const EarlyTerminate&) const = default;
};

/// The largest SessionConfig::activation_share.
inline constexpr double kMostActivations = 0.9;

/// Default of SessionConfig::max_history: about 1 MiB of losses and norms and 1 MiB of evaluations.
inline constexpr std::size_t kMaxHistory = 65'536;

/// The hosts that train the trials of their sessions together: each takes a part of the reduction
/// groups. Every host has a session with these values and its own number, and gets the same trials
/// in the same order. With a token, hosts prove that they have it, and what they send is encrypted:
/// whoever else reaches their addresses can stop the training, but not read or change it.
struct HostsConfig {
  int size = 1;          ///< number of hosts
  int number = 0;        ///< of this host, below `size`
  std::string endpoint;  ///< HOST:PORT where host 0 listens; empty: the session can only plan
  /// Of this host, at which others reach it; empty: the one from which it reaches the endpoint.
  std::string address;
  /// Fewest hosts that begin once the time limit is over; 0: all. With size 1: this host begins
  /// alone, and others can join if it has an endpoint and a run_folder.
  int start_size = 0;
  int min_size = 1;  ///< fewest hosts that go on when others are lost
  /// Seconds to wait for another host: at the start, at submit(), at the end, for a sign of life.
  double timeout_s = 300;
  /// Of a host in each direction, for plans and simulations.
  Bytes network_bytes_per_s = 1'000'000'000;
  double network_latency_s = 1e-4;  ///< of an exchange, for plans and simulations
  /// File with the secret that all hosts share, at least 32 characters; empty: no token.
  std::filesystem::path token_file;
  /// Without a token, hosts may listen at other addresses than those of the machine itself.
  bool trust_network = false;
  /// What carries sums; the same on all hosts. nccl: from GPU to GPU, between the first GPUs of the
  /// hosts. NCCL takes memory there beside their budgets, and neither authenticates nor encrypts,
  /// so it needs trust_network.
  BackendKind backend = BackendKind::gloo;
  /// The same on all hosts. sharded takes least memory; when a host is lost, training goes on from
  /// the newest checkpoint. With shadowed, the hosts that are left first save a checkpoint of the
  /// last step, unless two are lost that have the same part.
  HostStateKind state = HostStateKind::replicated;
  std::string invitation;  ///< of host 0: what a host gets that has no configuration yet
  /// Folder of the run, which all hosts share. If host 0 is lost, the next host locks it and saves
  /// all trials, which train on in new sessions: see Session::next_hosts(). The same happens when
  /// hosts join, and with sharded or shadowed state when any host is lost. With sharded state
  /// nothing is saved then. Empty: training ends, and nobody can join.
  std::filesystem::path run_folder;
  /// Where hosts 1, 2, ... listen if those before them are lost before all have met: see
  /// without_host_0(). Set by Session::next_hosts().
  std::vector<std::string> successors;
  /// Whether trials go on from an earlier session of these hosts. They then lose no time by
  /// measuring what the file SessionConfig::pilot_cache has. Set by Session::next_hosts().
  bool meets_again = false;
  /// Whether there are other hosts, or may be later.
  bool several() const { return size > 1 || start_size > 0; }
  /// How hosts that meet again do so if the new host 0 is lost before they train (HostLost).
  /// Nothing: they cannot.
  std::optional<HostsConfig> without_host_0() const;
  bool operator==(const HostsConfig&) const = default;
};

/// Devices, memory and scheduling of a session.
struct SessionConfig {
  std::vector<DeviceConfig> devices;  ///< at least one, all of one kind
  std::vector<LinkConfig> links;      ///< between devices
  /// Of the whole process: choose `portable` before LibTorch computes; later sessions keep it.
  NumericsKind numerics = NumericsKind::native;
  /// Part of each device's memory reserved for activations. 0: activations share the whole budget;
  /// on GPUs a quarter is reserved.
  double activation_share = 0;
  Bytes host_memory = 4_GiB;  ///< bounds the training state of all trials, in memory or in files
  std::filesystem::path offload_path;    ///< folder of the training state; empty: in memory
  PolicyKind policy = PolicyKind::lrtf;  ///< which shard runs next
  /// Who gets how many devices. A trial takes part once its host memory is reserved.
  SharingKind sharing = SharingKind::none;
  bool double_buffer = true;          ///< load the next unit while an op computes
  std::filesystem::path pilot_cache;  ///< file of measured costs; empty: none are kept
  bool estimate = false;  ///< estimate costs from shapes, without a pilot; simulate() only
  std::size_t max_trace_spans = 0;   ///< spans of a run that are kept, from its start
  std::size_t max_events = 100'000;  ///< latest events that poll() can return; at least 1
  /// Latest steps of a trial whose losses and norms are kept, and as many evaluations, in its
  /// result and its checkpoints. At least 1.
  std::size_t max_history = kMaxHistory;
  /// Seconds. A device without a sign of life for this long, and for 20 times the planned duration
  /// of its work, is lost.
  double device_timeout_s = 60;
  /// What a trial does when no device is left for it: wait until one is added, or fail.
  bool wait_for_devices = true;
  /// Compares all trials of the session and of its journal. Waiting trials keep their training
  /// state, so host_memory must hold that of all trials that train at once.
  std::optional<EarlyTerminate> early_terminate;
  HostsConfig hosts;  ///< those that train together, if there are several

  bool has_gpus() const {  ///< whether a device is a GPU
    return std::ranges::count(devices, DeviceKind::cuda, &DeviceConfig::kind) > 0;
  }
};

}  // namespace spillway
