#pragma once

#include <boost/container/small_vector.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <span>
#include <utility>
#include <vector>

#include "core/device/range_allocator.h"
#include "spilling/residency/buffer.h"
#include "spilling/residency/copy.h"
#include "spilling/residency/residency.h"
#include "spilling/residency/shared_blocks.h"
#include "spillway/ids.h"
#include "spillway/units.h"

namespace spillway {

/// A list that is nearly always short and then allocates nothing.
template <typename T>
using ShortList = boost::container::small_vector<T, 4>;

/// The scheduler, as a residency manager sees it.
class ResidencyOwner {
 public:
  /// The distance to the next read of a buffer; infinity: there is none. Eviction follows it.
  virtual double next_use(BufferRef ref) const = 0;
  /// Whether several tracks will still read a buffer. Their devices then get copies of their own.
  virtual bool has_several_readers(BufferRef ref) const = 0;
  /// Whether a job is running. If not, its copies need no write back.
  virtual bool is_running(JobId job) const = 0;
  /// Starts the copy and returns its id.
  virtual ActionId start_copy(StartCopy copy) = 0;
  /// Starts to free a kept graph and returns the action's id.
  virtual ActionId start_drop(DeviceId device, BufferRef graph) = 0;
  /// The tables of the device have changed.
  virtual void touch(DeviceId device) = 0;
  /// The device has to wait until an action of the job ends.
  virtual void watch(JobId job, DeviceId device) = 0;

 protected:
  ~ResidencyOwner() = default;
};

/// Knows where the bytes of all jobs are: which buffers have a valid home, which devices have a
/// copy, and which copies are in flight. Makes room on devices by eviction. Pure and copyable; each
/// call that may start a copy takes the owner. Buffers of a job are numbered as in its plan.
///
/// A block that jobs share has one copy on a device, whichever job asked for it: its leases count
/// for all jobs, its home is always valid, and it stays until its room is needed or no job is left.
/// Every function takes the job's own number of such a block.
///
/// A graph that an op keeps has a range for its bytes and no home. It needs the copies that its
/// tensors are views of, so it leases them. Like any copy, it is evicted when its room is needed.
class ResidencyManager {
 public:
  enum class Room {
    ready,
    wait,  ///< an action in flight has to end first
    never  ///< not as long as the leased copies stay
  };

  /// Buffers that a device has to hold at once.
  struct Request {
    ShortList<BufferRef> place;                          ///< no copy there yet; of one job
    ShortList<BufferRef> keep;                           ///< copies that must stay
    RangeAllocator::End end = RangeAllocator::End::low;  ///< where they are placed
    Bytes workspace = 0;                                 ///< beside all copies
    std::span<const Bytes> op_area;  ///< pieces that must still find room afterwards
    RangeAllocator::End op_end = RangeAllocator::End::low;
    ShortList<Bytes> later;  ///< and these, once only `keep` and `place` are left
    Bytes later_workspace = 0;
    JobId spared_job;             ///< its copies of `spared` may not be evicted
    std::span<const int> spared;  ///< ascending
  };

  struct RoomMade {
    Room room = Room::ready;
    int evictions = 0;
  };

  explicit ResidencyManager(std::span<const Bytes> budgets);

  void add_device(Bytes budget) { devices_.push_back(DeviceCopies{Residency(budget)}); }
  /// The device is lost, and every copy there.
  void forget(DeviceId id);
  const Residency& on(DeviceId id) const { return devices_[id.index()].copies; }
  /// Ops lease copies there, and mark what they write.
  Residency& on(DeviceId id) { return devices_[id.index()].copies; }

  void add_job() { jobs_.emplace_back(); }
  /// The bytes among these blocks that no job has at home yet.
  Bytes missing_homes(std::span<const SharedBlock> blocks) const { return shared_.missing(blocks); }
  /// A job has these blocks at home from now on.
  void take_homes(std::span<const SharedBlock> blocks);
  /// The job begins a program with these buffers, which outlive it: none has a valid home or a
  /// copy, except for the shared ones, whose homes are valid.
  void begin(JobId job, const std::vector<BufferSpec>& buffers, std::int64_t version,
             std::span<const SharedBlock> blocks = {});
  /// The job has no copy on any device, and will not get any.
  void end(ResidencyOwner& owner, JobId job);
  /// A job has these blocks no longer at home. Returns the bytes that no job has any more.
  Bytes give_back_homes(std::span<const SharedBlock> blocks) { return shared_.give_back(blocks); }
  void set_home_valid(BufferRef ref) { state(ref).home_valid = true; }
  bool home_valid(BufferRef ref) const { return state(ref).home_valid; }
  /// Whether a device has the original of a buffer, or is about to have it.
  bool has_original(BufferRef ref) const;
  /// Whether the device has a copy.
  bool holds(DeviceId id, BufferRef ref) const;
  /// The copy there; null: there is none.
  Resident* find(DeviceId id, BufferRef ref) { return on(id).find(shared_or(ref)); }
  const Resident* find(DeviceId id, BufferRef ref) const { return on(id).find(shared_or(ref)); }
  /// The number of the shared block that is a job's buffer; -1: the job has it alone.
  int shared_number(BufferRef ref) const;
  /// The jobs that use a shared block in their present programs, with their numbers of it.
  const std::vector<BufferRef>& users(int block) const { return blocks_[at(block)].users; }
  /// Whether the job will read a buffer that only this device holds.
  bool has_only_copy(const ResidencyOwner& owner, DeviceId id, JobId job) const;

  /// Makes room for everything in `request`. If it cannot, only evictions change the tables.
  RoomMade make_room(ResidencyOwner& owner, DeviceId id, const Request& request);
  /// Places everything in `request` if there is room without evictions.
  bool place_all(DeviceId id, const Request& request);
  /// Whether the pieces of request.op_area fit once every evictable copy has left.
  bool op_area_fits(DeviceId id, const Request& request) const;
  /// Evicts all unused copies. Returns their number.
  int evict_all(ResidencyOwner& owner, DeviceId id);

  /// Fills a copy from its home or, if that is not valid, from a device that can send it.
  void load(ResidencyOwner& owner, DeviceId id, BufferRef ref);
  /// `leaves`: the copy leaves the device afterwards. A sum goes to the home where it is kept
  /// between units.
  void write_back(ResidencyOwner& owner, DeviceId id, BufferRef ref, bool leaves);
  /// Sends a finished sum home. It leaves the device.
  void finish_sum(ResidencyOwner& owner, DeviceId id, BufferRef ref);
  /// Writes back those buffers that only other devices hold and that cannot move directly. Returns
  /// true if there are none.
  bool fetch_homes(ResidencyOwner& owner, DeviceId id, JobId job, const std::vector<int>& buffers);
  /// A graph on the device leases these copies until it leaves.
  void hold_for(DeviceId id, BufferRef graph, const std::vector<int>& needed);
  /// Starts to free the graphs of a job. Returns whether there are any.
  bool drop_graphs(ResidencyOwner& owner, JobId job);
  void end_drop(ResidencyOwner& owner, DeviceId id, BufferRef graph);
  /// The number of graphs on the device that lease a copy.
  int graphs_that_need(DeviceId id, BufferRef ref) const;
  void drop(ResidencyOwner& owner, DeviceId id, BufferRef ref);
  /// The buffer is dead: every copy leaves, at once or when its transfer ends.
  void drop_everywhere(ResidencyOwner& owner, BufferRef ref);
  /// An op or unit that will not go on gives its lease of a shared copy back.
  void end_lease(ResidencyOwner& owner, DeviceId id, BufferRef ref);
  /// Drops every copy that only a job without actions in flight has, leased or not.
  void drop_all(ResidencyOwner& owner, JobId job);
  void end_copy(ResidencyOwner& owner, const CopyRoute& copy);
  /// The device of a copy was lost: releases the other end, which is a home or another device.
  void end_lost_copy(ResidencyOwner& owner, const CopyRoute& copy);

  /// Throws std::logic_error if an invariant is broken.
  void check_integrity() const;

 private:
  struct BufferState {
    bool home_valid = false;
    boost::container::small_vector<DeviceId, 2> holders;  ///< devices with a copy
  };
  struct JobBuffers {
    const BufferSpec* specs = nullptr;  ///< of its plan
    std::int64_t version = 0;           ///< the step whose state copies hold
    std::vector<BufferState> buffers;
    std::vector<int> shared;        ///< by buffer: number of the shared block, or -1; or empty
    std::vector<Bytes> busy_homes;  ///< of copies in flight
    boost::unordered_flat_map<int, ShortList<int>> graphs;  ///< kept ones, and what they lease
  };
  struct BlockState {
    BufferSpec spec;
    BufferState state;
    std::vector<BufferRef> users;
  };
  struct DeviceCopies {
    Residency copies;
    int num_transfers = 0;  ///< copies in flight to and from it
  };

  bool later_fits(DeviceId id, const Request& request) const;
  bool evict_one(ResidencyOwner& owner, DeviceId id, const Request& request);
  void free_graph(ResidencyOwner& owner, DeviceId id, BufferRef graph);
  void send_home(ResidencyOwner& owner, DeviceId id, BufferRef ref, Bytes home, Bytes bytes,
                 bool leaves);
  DeviceId sender(const ResidencyOwner& owner, BufferRef ref) const;
  void lend(ResidencyOwner& owner, DeviceId id, BufferRef ref);
  void send_away(ResidencyOwner& owner, DeviceId id, BufferRef ref, ActionId move);
  bool release_other_end(ResidencyOwner& owner, const CopyRoute& copy);
  bool home_is_busy(BufferRef ref) const;
  bool cannot_leave(ResidencyOwner& owner, DeviceId id, BufferRef ref, const Resident& entry) const;
  bool is_spared(const Request& request, BufferRef ref) const;
  void forget_user(JobId job);

  /// The shared block that is the buffer, or the buffer itself.
  BufferRef shared_or(BufferRef ref) const {
    const int block = shared_number(ref);
    return block < 0 ? ref : BufferRef{kAllJobs, block};
  }
  const BufferSpec& spec(BufferRef ref) const {
    return ref.job == kAllJobs ? blocks_[at(ref.buffer)].spec
                               : jobs_[ref.job.index()].specs[at(ref.buffer)];
  }
  const BufferState& state(BufferRef ref) const {
    const BufferRef found = shared_or(ref);
    return found.job == kAllJobs ? blocks_[at(found.buffer)].state
                                 : jobs_[found.job.index()].buffers[at(found.buffer)];
  }
  BufferState& state(BufferRef ref) {
    return const_cast<BufferState&>(std::as_const(*this).state(ref));
  }

  std::vector<DeviceCopies> devices_;
  std::vector<JobBuffers> jobs_;
  SharedBlocks shared_;
  std::vector<BlockState> blocks_;  // by number
};

}  // namespace spillway
