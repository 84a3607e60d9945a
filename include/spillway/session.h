#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/ids.h"
#include "core/trace.h"
#include "core/units.h"
#include "trainer/contract.h"

/// The public API: submit trials, run them, watch them. Plain values in and out, no callbacks
/// into the caller, so other languages and protocols can mirror it.
namespace spillway {

class RunLock;     // trainer/run_lock.h
struct Model;      // models/model.h
struct DataSplit;  // models/data_source.h
/// Makes the model for virtual nodes of `vn_size` samples.
using ModelFactory = std::function<std::unique_ptr<Model>(std::int64_t vn_size)>;

struct DeviceConfig {
  std::string kind = "cpu";  ///< cpu | cuda
  Bytes memory = 0;
  int index = 0;  ///< of the GPU, which several devices may share; cuda only
  // The rest is of cpu only.
  /// Each way, imitated by sleeping; 0: as fast as memory is. Between devices that of the reader.
  Bytes link_bytes_per_s = 0;
  double slowdown = 1;  ///< ops take so many times longer, imitated by sleeping
  DeviceFault fault;    ///< to rehearse it
};

/// Early stopping by successive halving, in steps; see scheduler/successive_halving.h. Which trials
/// go on follows from their losses alone, whatever trains when and where.
struct EarlyTerminate {
  std::int64_t min_iter = 1;  ///< the first rung, at least 1
  int eta = 3;  ///< at least 2: so many times more steps to the next, for 1 / eta of them
  bool operator==(const EarlyTerminate&) const = default;
};

inline constexpr double kMostActivations = 0.9;

/// What a trial remembers of its own past: 1 MiB of losses and norms, 1 MiB of evaluations.
inline constexpr std::size_t kMaxHistory = 65'536;

struct SessionConfig {
  std::vector<DeviceConfig> devices;
  /// Of each device's memory, kept apart for activations. 0: they take what they need anywhere, or,
  /// where a device is a GPU, a quarter.
  double activation_share = 0;
  Bytes host_memory = 4_GiB;        ///< bounds the homes, wherever they lie
  std::filesystem::path home_path;  ///< homes lie in files of this folder; empty: in memory
  std::string policy = "lrtf";      ///< lrtf | srtf | fifo | round_robin | random
  /// Who gets how many lanes, see scheduler/allocator.h: none (what a trial asks for) | priority |
  /// wfs | fill. A trial takes part once its home is reserved.
  std::string sharing = "none";
  bool double_buffer = true;          ///< load what runs next while this op computes
  std::filesystem::path pilot_cache;  ///< measured costs, kept between runs; empty: not kept
  bool estimate = false;              ///< no pilot: costs from shapes. To simulate(), not to run()
  std::size_t max_trace_spans = 0;    ///< kept of a run, from its start
  std::size_t max_events = 100'000;   ///< kept for poll(), the last ones; at least 1
  /// Steps of a trial whose losses and norms are kept, the last ones, and as many evaluations: in
  /// its result and its checkpoints. At least 1.
  std::size_t max_history = kMaxHistory;
  /// A device that gives no sign of life for so long, and for 20 times what its work is planned to
  /// take, is lost.
  double device_timeout_s = 60;
  /// Whether a trial that no device is left for waits for one to be added. If not, it fails.
  bool wait_for_devices = true;
  /// Compares all trials of the session, and of its journal. Who waits for others keeps its home,
  /// so host_memory must hold all of them at once.
  std::optional<EarlyTerminate> early_terminate;
};

/// TrainConfig::lanes: as many as pay.
inline constexpr int kAutoLanes = 0;

/// A rule of a trial's autoscaler, see scheduler/heuristic.h.
struct AutoscaleRule {
  std::string rule;  ///< throughput | linear | stepped | straggler
  std::map<std::string, double> params;
};

/// Names follow Hugging Face's TrainingArguments where it has one.
struct TrainConfig {
  std::uint64_t seed = 1;
  std::int64_t batch_size = 32;  ///< samples a step, over all virtual nodes
  int virtual_nodes = 8;         ///< divides batch_size
  int reduction_groups = 0;      ///< divides virtual_nodes; 0: the largest divisor up to 8
  /// At most reduction_groups and the number of devices; fewer where that is faster, on unequal
  /// ones. kAutoLanes: begins with as many as there may be, and its rules go on from there
  /// (`throughput` where there are none); where devices are shared, asks for as many.
  int lanes = 1;
  /// Groups of each lane; empty: as equal as can be.
  std::vector<int> lane_groups;
  /// The most lanes that rules, shares or Session::resize() may give; host memory is reserved for
  /// them. 0: `lanes`; of kAutoLanes, what groups and devices allow at submission.
  int max_lanes = 0;
  /// Decide after every step how many lanes the trial goes on with; where devices are shared, how
  /// many it asks for. `straggler` names devices that take no lane of it. Empty: none.
  std::vector<AutoscaleRule> autoscale;
  int priority = 1;  ///< 1 to 100, where devices are shared; a larger one is more important
  std::string order = "auto";  ///< auto | shard_major | vn_major
  /// fp32 | bf16: what layers compute with. Weights and moments are fp32, and sums of gradients
  /// while they grow, as are norms, softmax and loss.
  std::string dtype = "fp32";
  /// fp32 | bf16: what gradients travel and are kept as at home. bf16 rounds the sum of each
  /// reduction group and each sum of such sums.
  std::string gradient_dtype = "fp32";
  std::int64_t max_steps = 50;
  std::string optimizer = "adamw";  ///< adamw | sgd
  double learning_rate = 1e-3, weight_decay = 0.01;
  double momentum = 0.9;  ///< of sgd
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;                ///< 0: no clipping
  std::string lr_scheduler_type = "cosine";  ///< cosine | linear | constant
  double warmup_ratio = 0;
  std::int64_t eval_steps = 0;  ///< 0: at the end only
  std::int64_t eval_batches = 8;

  /// Throws ConfigError naming the field (`train.virtual_nodes`, ...), the value, the remedy.
  void validate() const;
};

/// Generations of a trial's whole state, in a folder of its own; see docs/formats.md. Written at
/// commits while it trains on, at its end, and when it is stopped. One that cannot be written
/// leaves the older ones as they are and the trial running.
struct CheckpointConfig {
  std::filesystem::path folder;  ///< empty: none are written
  std::int64_t every_steps = 0;  ///< 0: not by steps
  double every_s = 0;            ///< 0: not by time
  int keep = 2;                  ///< generations, at least 1
  /// Go on from the newest that verifies; where there is none, from the beginning. Also where a
  /// journal says that the trial has ended.
  bool resume = false;
};

struct TrialConfig {
  std::string name;
  std::string client_id;  ///< the submitter's own: a session takes each once; empty: none
  ModelFactory model;
  std::shared_ptr<const DataSplit> data;
  TrainConfig train;
  CheckpointConfig checkpoint;
  /// What the bits depend on beside shapes, data and `train`, by field, as text: what `model` and
  /// `data` compute. Compared when the trial is resumed.
  std::map<std::string, std::string> contract;
  std::filesystem::path weights_file;  ///< final weights as safetensors; empty: not written

  /// Throws ConfigErrors for all that is wrong with `train` and, if there is one, with `model`.
  void validate() const;
};

/// stopped: by stop(), before its end. stopped_early: others were better at a rung.
enum class TrialState : std::uint8_t { waiting, running, done, failed, stopped, stopped_early };
const char* to_string(TrialState state);
/// Whether a later session does not go on with the trial: it is done, failed or stopped early.
bool is_final(TrialState state);
/// The way back; nothing for a text that is no state.
std::optional<TrialState> trial_state(std::string_view text);

struct TrialResult {
  std::string name;
  TrialState state = TrialState::waiting;
  std::string reason;  ///< why it failed, or was stopped early
  std::int64_t parameters = 0;
  int num_shards = 0, virtual_nodes = 0, lanes = 0;
  std::string order;
  std::int64_t steps = 0;  ///< committed
  std::optional<double> first_loss, final_loss, eval_loss;
  double tokens_per_s = 0;
  std::string weights_xxh3;  ///< 32 hex digits; XXH3-128 of names, shapes and fp32 bytes in order
  Bytes training_state_bytes = 0;              ///< weights, gradients, moments
  std::int64_t dropped_steps = 0;              ///< the first ones, which the lists do not have
  std::vector<double> losses, gradient_norms;  ///< one a committed step
  std::vector<std::pair<std::int64_t, double>> eval_losses;  ///< (step, loss)
  /// Of early stopping: (rung, mean loss of the steps since the one before), where it is decided.
  std::vector<std::pair<std::int64_t, double>> rung_losses;
};

/// What ran where; the counters that exactness tests assert.
struct DeviceResult {
  std::string kind;
  Bytes budget_bytes = 0;
  Bytes peak_bytes = 0;             ///< predicted: the budget, where copies have to make room
  Bytes activation_peak_bytes = 0;  ///< the part of one op that no plan places
  double busy_share = 0;
  Bytes h2d_bytes = 0, d2h_bytes = 0;  ///< over its link
  std::uint64_t ops = 0, loads = 0, prefetches = 0;
  std::uint64_t evictions = 0;  ///< copies taken away before their last use there
};

struct RunResult {
  std::vector<TrialResult> trials;
  std::vector<DeviceResult> devices;
  Bytes host_budget_bytes = 0, host_peak_bytes = 0;
  Bytes h2d_bytes = 0, d2h_bytes = 0, h2d_weight_bytes = 0;
  double copy_s = 0;
  /// The part of copy_s during which the device of the copy computed; none without copies.
  std::optional<double> copy_hidden_share;
  double copy_wait_s = 0;  ///< that devices were idle because of a copy and nothing else
  double wall_s = 0;
  /// Of a simulation: the share of all steps that it took; below 1, the totals follow from them.
  double simulated_share = 1;
  std::vector<TraceSpan> trace;  ///< what ran when, in order of ends
};

/// What a session does at one moment, to be looked at. Without a run nothing is under way.
struct SessionState {
  struct Device {
    std::string kind, state;  ///< joining | present | leaving | gone
    Bytes budget_bytes = 0;
    Bytes used_bytes = 0;  ///< planned ranges, and activations reserved for what runs
  };
  struct Trial {
    std::string name;
    TrialState state = TrialState::waiting;
    std::int64_t step = 0, max_steps = 0;  ///< committed; of all
    std::vector<int> lanes;                ///< the device that had each last in this step; -1: none
    std::string waits_for;                 ///< empty: it computes, or has ended
  };
  double time_s = 0;  ///< of the run's clock
  std::vector<Device> devices;
  std::vector<Trial> trials;
  /// Ops, copies and work of the host, in the order in which they were handed to their queues;
  /// `started_s` is when.
  std::vector<TraceSpan> under_way;
};

/// Something that happened, numbered from 1 without gaps.
struct SessionEvent {
  std::uint64_t sequence = 0;
  double time_s = 0;  ///< since the session's start
  JobId trial;        ///< not valid for events of a device
  enum class Kind : std::uint8_t {
    state,    ///< of a trial; one that waits for a device, or for its share, says why
    step,     ///< committed
    eval,     ///< finished
    resized,  ///< computes with `lanes` from the next step on; who decided it, where not devices
    redone,   ///< the step after `step` begins again, because a device was lost
    resumed,  ///< begins after `step` steps, from a checkpoint
    saved,    ///< the state after `step` steps is durable; with a reason: could not be written
    damaged,  ///< checkpoints, as the reason says; older ones are used, or none
    joined,   ///< a device
    left,     ///< a device that was removed, or shrank
    lost      ///< a device
  } kind = Kind::state;
  int device = -1;               ///< joined, left, lost: its number
  std::uint64_t generation = 0;  ///< saved, resumed: of the checkpoint
  int lanes = 0;                 ///< of the trial
  TrialState state = TrialState::waiting;
  std::int64_t step = 0;  ///< committed steps
  double loss = 0;
  double learning_rate = 0, gradient_norm = 0;
  double tokens_per_s = 0;
  std::string reason;        ///< why it failed, waits or was resized; why a device left
  std::string weights_xxh3;  ///< as TrialResult, once done
};

/// What is known of a trial before it runs.
struct TrialPlan {
  int num_shards = 0;
  std::string order;
  int lanes = 0;
  std::vector<int> lane_groups;           ///< reduction groups of each lane
  std::vector<std::string> lane_devices;  ///< that lanes are made for; empty: any device takes any
  /// For each device that a trial of several lanes does better without: why, as a sentence.
  std::vector<std::string> declined;
  Bytes home_bytes = 0;             ///< host
  Bytes smallest_budget_bytes = 0;  ///< of a device
  /// Of a device that has room to load the next shard while one computes; 0: none spills, or
  /// loading ahead is off.
  Bytes load_ahead_budget_bytes = 0;
  bool loads_ahead = false;
  std::vector<std::string> shards;  ///< their first and last layers: "embed - h.1.mlp"
  /// What makes up the home; the rest is boundaries, their gradients and batches.
  Bytes home_weights_bytes = 0, home_moments_bytes = 0, home_sums_bytes = 0;
  /// What makes up the room of the unit that needs most.
  Bytes unit_weights_bytes = 0, unit_sums_bytes = 0;
  Bytes unit_activations_bytes = 0, unit_boundaries_bytes = 0;
  double compute_s_per_step = 0;  ///< on one device, as measured
  Bytes training_state_bytes = 0;
  Bytes checkpoint_bytes = 0;     ///< on disk, the most at once, if it has a folder for them
  Bytes shard_weights_bytes = 0;  ///< of all shards; what several of them use counts in each
};

/// Trials on shared devices. One thread calls submit() and run(), as often as it likes: each run()
/// trains what was submitted before it and has not ended; resize, add_device, remove_device, poll,
/// stop, result and state may come from any thread. Trials, and devices, are numbered from 0; one
/// that has left keeps its number. Devices that come, go and fail, and resizes, change no bit of a
/// result.
class Session {
 public:
  /// Throws ConfigError (`devices`, `devices[1].memory`, `devices[1].link`, `home_path`,
  /// `scheduling.policy`, `scheduling.sharing`, `sweep.early_terminate`).
  explicit Session(SessionConfig config);
  ~Session();

  /// From now on the folder, this session's alone, has a journal of the trials (docs/formats.md),
  /// and all that are submitted must have a client's id. A trial that earlier sessions with this
  /// journal have ended is not run again: submit() gives it their result. One that they have not
  /// ended goes on from its newest checkpoint. Before run(). Throws InUse where another process has
  /// the folder; IoError, CorruptData, NewerFormat; ConfigError (`client_id`).
  void keep_journal(const std::filesystem::path& folder);
  /// As above, in a folder that the caller has locked already.
  void keep_journal(RunLock lock);
  /// What it says of all its trials, by their ids as names, without the lists of losses.
  std::vector<TrialResult> journal() const;

  /// What of a trial is otherwise than the journal has it, by its client's id: no such trial can be
  /// submitted. Empty also where the journal does not know it. Throws ConfigError as submit().
  std::vector<ContractDifference> changes(TrialConfig trial);
  /// Plans a trial: measures its layers and cuts it under the budget. With a client's id that is
  /// known already, it returns that trial. Once it returns, a journal has the trial for good.
  /// Throws Error while run() runs, ConfigError (also `client_id`, where it stands for another
  /// contract, and `data`, where the samples are not what the model takes), DoesNotFit with the
  /// smallest budget that would do, or where the disk of `home_path` has no room for the homes that
  /// may lie there at once, or Error where a layer does not run.
  JobId submit(TrialConfig trial);
  const TrialPlan& plan(JobId trial) const;
  /// Throws DoesNotFit where early stopping needs more host memory than there is, for the homes of
  /// all trials. So do run() and simulate().
  void check() const;

  /// Trains every submitted trial that has not ended to its end. A trial that fails does so alone.
  /// Throws Error where costs are estimates, and IoError at the end where the journal could not be
  /// written. Where it throws, trials that had not ended are stopped.
  void run();
  /// What run() would do: the same engine on a virtual clock, with the pilot's costs. Times,
  /// counters and each trial's `steps` are predicted; else trials are as they are. Losses to come
  /// are not known: where early stopping compares trials, those submitted first are the better
  /// ones.
  /// Where the run has more than `most_ops` ops, some of its steps are simulated, and times, bytes
  /// and counts of the whole follow from them.
  RunResult simulate(double most_ops = std::numeric_limits<double>::infinity()) const;
  /// Ends all trials after their running ops: those of this run(), or, between two, of the next.
  void stop();

  /// From its next commit on the trial computes with so many lanes, fewer while there are fewer
  /// devices that can run it. No effect once it has ended. Throws ConfigError (`train.lanes`) where
  /// there are too few devices now, or host memory is not reserved for so many. This is the last
  /// word: from now on no rule of the trial counts, it takes no part in sharing, and shares are of
  /// the devices that are left, at least one.
  void resize(JobId trial, int lanes);
  /// Adds a device and returns its number. It takes part once it is warm. Throws ConfigError
  /// (`devices[N].memory`, ...) or OutOfMemory.
  int add_device(const DeviceConfig& device);
  /// The device leaves once what is bound to it has ended a step. Without any, trials wait until
  /// one is added. Throws ConfigError (`devices`) for one that is not there.
  void remove_device(int device);

  /// Events after `sequence`, waiting up to `wait_s` for the first. Of more than
  /// SessionConfig::max_events the oldest are gone: the first sequence is then not the next one.
  std::vector<SessionEvent> poll(std::uint64_t sequence, double wait_s) const;
  /// Up to now, or whole once run() has returned. Counters, times and trace are those of the latest
  /// run().
  RunResult result() const;
  /// At this moment. Waits until the thread that runs run() can answer, a moment; changes nothing.
  SessionState state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
