#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/base/fold.h"
#include "core/spec/profile.h"
#include "scheduler/plan/strategy.h"
#include "spilling/residency/buffer.h"
#include "spillway/ids.h"
#include "spillway/spec.h"
#include "spillway/units.h"

/// A step of a job as values: buffers, compute ops grouped into units, host ops. Made by lower(),
/// run by the Engine. Immutable.
namespace spillway {

/// A step that no job reaches.
inline constexpr std::int64_t kNoStep = std::numeric_limits<std::int64_t>::max();

enum class OpKind : std::uint8_t {
  forward,   ///< no graph; writes the boundary after the range
  backward,  ///< recomputes the range with graphs, then its backward; sums gradients
  evaluate,  ///< forward without dropout; the range with the loss yields a partial
};

/// The additions after a backward op, in terms of the unit's sum slots.
struct FoldStep {
  int slot = 0;        ///< this virtual node's gradient goes here
  bool fresh = false;  ///< first of its group: copied, not added
  struct Merge {
    int into, from;
  };
  std::vector<Merge> merges;  ///< then, in order: slot `into` += slot `from`
};

/// One virtual node through one layer range. Buffers are positions in Layout::buffers.
struct OpSpec {
  OpKind kind = OpKind::forward;
  int vn = 0;
  LayerRange layers;
  std::vector<int> inputs;   ///< boundaries, gradients, batch parts
  std::vector<int> outputs;  ///< created by the op
  FoldStep fold;             ///< backward only
  int graph = -1;       ///< buffer: a forward may keep its graph, a backward uses it if it is there
  int num_numbers = 0;  ///< scalar results: a loss, sums of metrics, squared norms
  Bytes workspace = 0;  ///< activations at their peak, beside a kept graph
  double cost_s = 0;
  double cost_kept_s = 0;  ///< of a backward that uses a kept graph; of others: cost_s
  double seconds(bool has_graph) const { return has_graph ? cost_kept_s : cost_s; }
};

/// Hydra's shard unit: consecutive ops of one track over the same layers, run on one device with
/// weights and gradient sums held throughout.
struct UnitSpec {
  int track = 0;
  int cell = 0;  ///< of its virtual nodes, among the cells of the stage
  OpKind kind = OpKind::forward;
  LayerRange layers;
  int first_op = 0, num_ops = 0;
  std::vector<int> weights;    ///< buffers
  std::vector<int> leaves;     ///< weights that leave the device with it
  std::vector<int> sums;       ///< buffers, slot-major: slot * (layers with gradients) + layer
  std::vector<int> drains;     ///< of the last unit of its cell: sums that go home when it ends
  std::vector<int> unit_deps;  ///< units of other tracks that make what it reads
  std::vector<int> host_deps;  ///< host ops that must be done before the unit starts
  Bytes workspace = 0;         ///< largest of its ops; 0 with a dedicated activation pool
  std::vector<Bytes> op_area;  ///< memory that any one op needs besides weights and sums
  double cost_s = 0;
};

/// The access of an op to a buffer on its device.
enum class BufferUse : std::uint8_t { weights, sum, input, output };

/// Calls `take(buffer, use)` for each buffer of an op of `unit`, in the one order in which
/// StartOp::offsets is written and read.
template <typename Take>
void for_each_buffer(const UnitSpec& unit, const OpSpec& op, const Take& take) {
  for (int b : unit.weights) take(b, BufferUse::weights);
  for (int b : unit.sums) take(b, BufferUse::sum);
  for (int b : op.inputs) take(b, BufferUse::input);
  for (int b : op.outputs) take(b, BufferUse::output);
}

enum class HostOpKind : std::uint8_t {
  load,    ///< read the batch of the step (or the evaluation batches) into its homes
  reduce,  ///< finish a layer's gradient sum over lanes, squared norms
  commit,  ///< fold losses and norms; the step's only commit point
  update,  ///< optimizer on one weights block, then its next version is at home (frozen: the same)
  finish_evaluation,
  finish,       ///< the last weights are at home: hand them out; the job is done after it
  add,          ///< adds partial sums of a layer to others
  exchange,     ///< carries out its transfers
  update_part,  ///< optimizer on what this host keeps of one weights block; others have the rest
  take_weights  ///< all parts of the block have come: its next version is at home
};

/// HostOpSpec::index of exchanges that belong to no layer: numbers of a step, numbers of an
/// evaluation, and the state after the last step, whose transfers are not in the program.
inline constexpr int kStepNumbers = -1, kEvalNumbers = -2, kLastState = -3;

/// What a host tells the others with the norms of a step, as a sum of these.
enum HostStepWord : std::uint8_t {
  kSaves = 1,  ///< host 0: all hosts save the state after this step
  kSaved = 2,  ///< host 0: it has saved a later state than that after which others asked
  kAsks = 4,   ///< another host: host 0 should save the state
};

/// Elements [begin, end) of a parameter.
struct ElementRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};
inline ElementRange all_elements(const ParamSpec& param) { return {0, param.tensor.elements()}; }
/// Those in both.
inline ElementRange overlap(ElementRange a, ElementRange b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Elements of a parameter that belong to one of several hosts: whole chunks of its squared norm
/// (kernels::kNormChunk).
struct HostPart {
  int host = 0;
  int shadow = -1;  ///< another host that updates them, too (JobShape::shadows_state); -1: none
  ElementRange elements;
  Bytes norms = kNoHome;  ///< f64: those of the chunks, if the parameter is trainable
};

/// Bytes [home, home + bytes) of a home, or of something in it.
struct HomeRange {
  Bytes home = 0, bytes = 0;
};

/// A range of the job's home goes to another host that trains the job, or comes from there.
struct Transfer {
  int peer = 0;           ///< number of the other host
  bool is_sent = false;   ///< else taken
  std::uint64_t tag = 0;  ///< the same on both hosts; in use once at a time
  Bytes home = 0, bytes = 0;
};

/// Bytes of a parameter, or of sums, that a thread takes of a host op that several share.
inline constexpr Bytes kHostGrain = 256_KiB;

struct HostOpSpec {
  HostOpKind kind = HostOpKind::load;
  /// Layer (reduce, add, exchange of its sums; or kStepNumbers, ...), weights buffer
  /// (update, update_part, take_weights, exchange of its parts); load: 1 for evaluation.
  int index = 0;
  std::vector<int> unit_deps;  ///< units that must be done and drained
  std::vector<int> host_deps;
  double cost_s = 0;                    ///< on one thread
  int grains = 1;                       ///< parts that threads may compute at the same time
  std::vector<FoldStep::Merge> merges;  ///< add: of partials, by position, in order
  std::vector<HomeRange> parts;         ///< add: of the packed sums of the layer
  std::vector<Transfer> transfers;      ///< exchange
};

/// The bytes that an exchange sends to all other hosts, and those that it takes.
Bytes sent_bytes(const HostOpSpec& op);
Bytes taken_bytes(const HostOpSpec& op);

/// What a track needs of its device.
struct TrackNeed {
  Bytes blocks = 0;   ///< most bytes of weights and sums at once, without those that jobs share
  Bytes shared = 0;   ///< most bytes of these at once
  Bytes room = 0;     ///< most bytes that one op needs beside all of them
  double cost_s = 0;  ///< compute
};

/// One step. The lists are in an order that satisfies every dependency; the units of a track run
/// in list order, one at a time. A unit is started only once all that it reads has been made, so no
/// unit on a device waits for another.
struct Program {
  std::vector<OpSpec> ops;
  std::vector<UnitSpec> units;
  std::vector<HostOpSpec> host_ops;
  std::vector<std::vector<int>> track_units;  ///< unit positions by track
  std::vector<TrackNeed> track_needs;         ///< by track
  std::vector<std::vector<int>> unit_users;   ///< by buffer: units that use it, ascending
  std::vector<int> reads;  ///< by buffer: ops that read it; then it is dead. Not for weights, sums
  std::vector<std::vector<int>> units_after_unit;     ///< dependents on other tracks, by unit
  std::vector<std::vector<int>> host_ops_after_unit;  ///< dependents, by unit
  std::vector<std::vector<int>> host_ops_after_host;  ///< dependents, by host op
  std::vector<std::vector<int>> units_after_host;
  double compute_s = 0;
  bool commits = false;   ///< a training step
  bool finishes = false;  ///< the last program of its job. With neither: the job rests after it
};

/// The bytes that the exchanges of a program send.
Bytes sent_bytes(const Program& program);

/// The parts of a program. One that neither trains nor finishes brings the job to rest: its state
/// at home is that after its last commit.
struct StepKind {
  bool update = false;    ///< updates of the previous step
  bool evaluate = false;  ///< evaluation of the weights at that time
  bool train = false;     ///< a training step
  bool finish = false;    ///< hands the weights out; the job is done
  bool operator==(const StepKind&) const = default;
  std::size_t index() const {
    return (update ? 1u : 0u) | (evaluate ? 2u : 0u) | (train ? 4u : 0u) | (finish ? 8u : 0u);
  }
  static constexpr std::size_t kNum = 16;
};

/// A training step with the updates of the step before.
inline constexpr StepKind kStepAfterStep{.update = true, .train = true};

/// The offsets of the sums of a layer's parameters. They accumulate in f32; at the end of a unit
/// they are packed in place, from the front, as ParamSpec::finished_sum(). If packing rounds, the
/// sums start at kAlignment, so that packing never overwrites unread sums.
struct SumPlaces {
  std::vector<Bytes> offsets, packed_offsets;  ///< by parameter of the layer; without one: kNoHome
  Bytes bytes = 0, packed_bytes = 0;           ///< 0: nothing to train or observe
};
SumPlaces sum_places(const ModelSpec& model, const LayerSpec& layer);

/// A job's buffers and where they live at home. Planes: weights p, `moments` of moments, copies of
/// the blocks that layers compute with in another type, gradients g (by use: a tied parameter has a
/// range for each layer that names it), further partial sums, boundaries, batch. Layers start at
/// multiples of kPage, parameters at multiples of kAlignment. Addresses are offsets in the job's
/// host memory; only the layout computes them. The frozen parameters of a layer that can be shared
/// are a block of their own, at kSharedHomes and beyond: masters, then the copy in another type.
struct Layout {
  struct ParamPlace {
    int weights_buffer = 0;  ///< the block that holds it in the type of its layer
    Bytes offset_in_block = 0;
    /// Of its master, from the first element of `held` on; outside the block if that is a copy.
    Bytes home = 0;
    ElementRange held;            ///< those whose masters this host has: all, or `kept`
    Bytes moment_offset = 0;      ///< of `kept` in each plane of moments; frozen: it has none
    Bytes sum = kNoHome;          ///< of its whole gradient sum: in the range of its last use
    ElementRange own;             ///< this host's part: all, unless state is sharded
    ElementRange kept;            ///< those that it updates: `own`, and what it shadows
    std::vector<HostPart> parts;  ///< of all hosts, if it is; without a sum: none
    bool divides_master = false;  ///< each host has only what it updates of the master
    /// Null if the host has none.
    const HostPart* own_part() const {
      const auto found = std::ranges::find(parts, own, &HostPart::elements);
      return found == parts.end() ? nullptr : &*found;
    }
  };
  struct LayerPlace {
    std::vector<int> weights_buffers;  ///< by parameter of the layer
    std::vector<Bytes> weight_offsets;
    SumPlaces sum;
    /// Positions among the layer's parameters: the last op on its sums takes their squared norms.
    /// The host takes the others.
    std::vector<std::size_t> device_norms;
    /// Homes of the packed sums, by position. A subtree of other hosts has room only for what this
    /// host adds (HostParts::of_sums()), the first one for what it keeps (kept_sums()); its home
    /// may lie before that room.
    std::vector<Bytes> partials;
    HomeRange total;  ///< the whole sum, or what this host updates of it if state is sharded
    /// Of partials, by position, in order: finishes the sum. With other hosts, add ops do.
    std::vector<FoldStep::Merge> merges;
  };
  std::vector<BufferSpec> buffers;
  std::vector<int> weights;        ///< weights buffers in update order: tied first
  std::vector<ParamPlace> params;  ///< by parameter
  std::vector<LayerPlace> layers;  ///< by layer
  /// Buffers of sums, by cell of the layer's stage, slot of the cell's stack and layer; -1: none.
  std::vector<std::vector<std::vector<int>>> sum_buffers;
  std::size_t sum_planes = 0;  ///< the most partials of a layer that are whole sums of its cells
  Bytes sums_bytes = 0;        ///< of these planes, and of what comes from other hosts
  Bytes weights_plane = 0, moments_plane = 0, sum_plane = 0;  ///< bytes of one
  Bytes copies_plane = 0;       ///< of weights that layers compute with in another type
  int moments = 0;              ///< planes of them
  Bytes moments_home = 0;       ///< of the first
  std::vector<int> batch;       ///< buffers, by virtual node from `first_vn` on
  std::vector<int> eval_batch;  ///< buffers, by evaluation virtual node from `first_eval_vn` on
  int first_vn = 0, first_eval_vn = 0;            ///< of this host
  int virtual_nodes = 0, eval_virtual_nodes = 0;  ///< of all hosts
  /// What hosts tell each other, f64: by virtual node, loss and weight; then by evaluation virtual
  /// node, loss, weight and the sums of metrics. Without other hosts: kNoHome.
  Bytes numbers_home = kNoHome;
  /// If their state is sharded, by host: a word (HostStepWord), then squared norms of chunks.
  std::vector<HomeRange> norms;
  int host = 0;                     ///< the number of this one
  int eval_numbers = 0;             ///< of an evaluation virtual node
  Bytes home_bytes = 0;             ///< of the job alone
  std::vector<SharedBlock> shared;  ///< of frozen parameters, beyond home_bytes
  Bytes shared_bytes = 0;           ///< of these blocks

  /// Whether several hosts train the job.
  bool has_peers() const { return numbers_home != kNoHome; }
  /// Host memory of a job that shares with no other.
  Bytes all_home_bytes() const { return home_bytes + shared_bytes; }
  /// Whether each host updates parts of the weights, and has only the moments of these.
  bool is_sharded() const { return !norms.empty(); }
  /// Whether another host keeps each of these parts, too.
  bool is_shadowed() const {
    return std::ranges::any_of(params, [](const ParamPlace& place) {
      return std::ranges::any_of(place.parts, [](const HostPart& p) { return p.shadow >= 0; });
    });
  }
  /// Whether it also has only their masters, where devices read a copy in another type.
  bool divides_masters() const { return std::ranges::any_of(params, &ParamPlace::divides_master); }
  /// Moment `i` of the first element of a parameter that this host keeps. Not for a frozen one.
  Bytes moment(int param, int i) const {
    return moments_home + static_cast<Bytes>(i) * moments_plane + params[at(param)].moment_offset;
  }
  /// A parameter in its block, as devices read it: its master, or the copy in another type.
  Bytes in_block(int param) const {
    const ParamPlace& place = params[at(param)];
    return buffers[at(place.weights_buffer)].home + place.offset_in_block;
  }
  /// The numbers of a virtual node, or of one of an evaluation. Behind the last: the end.
  Bytes numbers(int vn) const { return numbers_home + static_cast<Bytes>(2 * vn) * sizeof(double); }
  Bytes numbers_of_eval(int vn) const {
    return numbers(virtual_nodes) + static_cast<Bytes>(eval_numbers * vn) * sizeof(double);
  }
  /// The sums of a layer over the subtree that is partial `k`.
  Bytes partial(int layer, std::size_t k) const { return layers[at(layer)].partials[k]; }
  /// Once the layer is reduced: the sum of its parameter `i`, over this use of it.
  Bytes sum_of_use(int layer, std::size_t i) const {
    return partial(layer, 0) + layers[at(layer)].sum.packed_offsets[i];
  }
};

/// Everything the engine needs to run a job.
struct JobPlan {
  Strategy strategy;
  bool vn_major = false;
  /// The devices chosen for tracks, by track, all different; empty: any device takes any track.
  std::vector<DeviceId> track_devices;
  std::vector<DeviceId> avoided;  ///< devices that take no track of it
  Layout layout;
  std::vector<std::shared_ptr<const Program>> programs;  ///< by StepKind::index(); null: unused
  std::int64_t first_step = 0, max_steps = 0, eval_steps = 0;
  bool evaluates = false;
  Bytes needed_budget = 0;  ///< of a device that can run any unit of this plan
  double step_s = 0;        ///< compute of one training step

  /// Whether each track has every stage, in units of whole cells.
  bool has_lanes() const { return strategy.chunk == 0 && strategy.is_data_parallel(); }
  /// shard_major, vn_major, or "strategy" without lanes.
  const char* order() const {
    if (!has_lanes()) return "strategy";
    return to_string(vn_major ? OrderChoice::vn_major : OrderChoice::shard_major);
  }
  /// The device of a track; the invalid id: any.
  DeviceId device_of(int track) const {
    return track_devices.empty() ? DeviceId() : track_devices[at(track)];
  }
  bool roams() const { return strategy.roams(); }
  bool avoids(DeviceId device) const { return std::ranges::count(avoided, device) > 0; }
  /// The program after the commit of step `step`, if nothing holds the job there.
  StepKind step_kind(std::int64_t step) const;
  /// The program that finishes the job after the commit of `step`.
  StepKind finish_kind(std::int64_t step) const {
    return {.update = step > first_step, .evaluate = evaluates, .finish = true};
  }
  /// The program that brings the job to rest after the commit of `step`.
  StepKind rest_kind(std::int64_t step, bool evaluate) const {
    return {.update = step > first_step, .evaluate = evaluates && evaluate};
  }
};

}  // namespace spillway
