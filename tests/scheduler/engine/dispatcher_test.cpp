#include "scheduler/engine/dispatcher.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {
namespace {

constexpr DeviceId kDeviceA(0), kDeviceB(1);

/// A dispatcher over handmade tables: jobs whose tracks have two units each, of one op and without
/// buffers.
class Dispatching {
 public:
  explicit Dispatching(std::size_t num_devices, bool double_buffer = true)
      : tables(std::vector<Bytes>(num_devices, 100)),
        memory(std::vector<Bytes>(num_devices, 100)),
        dispatcher(tables, memory, make_policy("fifo"), double_buffer) {}

  JobId add_job(int num_tracks, JobPlan plan = {}) {
    auto program = std::make_shared<Program>();
    program->track_units.resize(at(num_tracks));
    plan.strategy.tracks = num_tracks;
    for (int unit = 0; unit < 2 * num_tracks; ++unit) {
      program->ops.emplace_back();
      program->units.push_back({.track = unit % num_tracks, .first_op = unit, .num_ops = 1});
      program->track_units[at(unit % num_tracks)].push_back(unit);
    }
    plan.programs = {program};
    JobTable job;
    job.program = program.get();
    job.plan = std::make_shared<const JobPlan>(std::move(plan));
    job.phase = JobPhase::running;
    job.tracks.resize(at(num_tracks));
    job.tracks_a_device = 1;
    job.units.resize(program->units.size());
    const JobId id(tables.jobs.size());
    tables.jobs.push_back(std::move(job));
    memory.add_job();
    dispatcher.rank(tables, id);
    dispatcher.note_ready();
    return id;
  }

  /// The unit that a device claims, or -1.
  int claim(DeviceId id) { return unit_of(dispatcher.claim(tables, memory, id)); }
  int steal(DeviceId id) { return unit_of(dispatcher.steal(tables, memory, id)); }

  /// The device loads its claimed unit.
  void prefetch(DeviceId id, UnitRef unit) {
    tables.of(id).next = unit;
    dispatcher.note_state(tables, memory, id);
  }

  /// Ends the unit, and ranks the next one of its track.
  void finish(JobId job, int unit) {
    tables.state({job, unit}).ops_done = 1;
    dispatcher.rank(tables, job);
    dispatcher.note_ready();
  }

  /// The devices to which a visit gives work, in order.
  std::vector<DeviceId> driven() {
    std::vector<DeviceId> ids;
    dispatcher.visit(
        tables, memory, [&](DeviceId id) { ids.push_back(id); }, [](DeviceId) {});
    return ids;
  }

  EngineTables tables;
  ResidencyManager memory;
  Dispatcher dispatcher;

 private:
  static int unit_of(const std::optional<UnitRef>& ref) { return ref ? ref->unit : -1; }
};

TEST(Dispatcher, ClaimsTheJobOfThePolicy) {
  Dispatching test(2);
  const JobId first = test.add_job(1), second = test.add_job(1);
  EXPECT_EQ(test.dispatcher.claim(test.tables, test.memory, kDeviceA), (UnitRef{first, 0}));
  EXPECT_EQ(test.dispatcher.claim(test.tables, test.memory, kDeviceB), (UnitRef{second, 0}));
}

TEST(Dispatcher, ClaimsTheNextUnitAheadWithDoubleBuffer) {
  for (const bool double_buffer : {true, false}) {
    Dispatching test(2, double_buffer);
    const JobId job = test.add_job(1);
    EXPECT_EQ(test.claim(kDeviceA), 0);
    EXPECT_EQ(test.claim(kDeviceB), -1) << "its predecessor runs on the other device";
    if (double_buffer) {
      EXPECT_EQ(test.claim(kDeviceA), 1);
    } else {
      EXPECT_EQ(test.claim(kDeviceA), -1);
      test.finish(job, 0);
      EXPECT_EQ(test.claim(kDeviceB), 1) << "a single track goes wherever there is room";
    }
  }
}

TEST(Dispatcher, BindsEachTrackToADevice) {
  Dispatching test(2);
  const JobId job = test.add_job(2);
  EXPECT_EQ(test.claim(kDeviceA), 0);
  EXPECT_EQ(test.claim(kDeviceA), 2) << "the next unit of its track, rather than another track";
  EXPECT_EQ(test.claim(kDeviceA), -1);
  EXPECT_EQ(test.claim(kDeviceB), 1);
  test.finish(job, 1);
  EXPECT_EQ(test.claim(kDeviceA), -1) << "bound to the second device";
  EXPECT_EQ(test.claim(kDeviceB), 3);
}

TEST(Dispatcher, GivesAPlacedTrackToItsDevice) {
  Dispatching test(2);
  test.add_job(1, {.track_devices = {kDeviceB}});
  EXPECT_EQ(test.claim(kDeviceA), -1);
  EXPECT_EQ(test.claim(kDeviceB), 0);
}

TEST(Dispatcher, GivesNothingToUnsuitableDevices) {
  Dispatching test(2);
  test.add_job(1, {.needed_budget = 101});
  test.add_job(1, {.avoided = {kDeviceA}});
  EXPECT_EQ(test.claim(kDeviceA), -1);
  test.tables.of(kDeviceB).state = DeviceState::leaving;
  EXPECT_EQ(test.claim(kDeviceB), -1);
  test.tables.of(kDeviceB).state = DeviceState::usable;
  test.dispatcher.note_ready();
  EXPECT_EQ(test.dispatcher.claim(test.tables, test.memory, kDeviceB), (UnitRef{JobId(1), 0}));
}

TEST(Dispatcher, DoesNotRepeatAFailedClaim) {
  Dispatching test(1);
  const JobId job = test.add_job(1);
  const auto enter = [&](JobPhase phase) {
    test.tables.of(job).phase = phase;
    test.dispatcher.rank(test.tables, job);
  };
  enter(JobPhase::settling);
  EXPECT_EQ(test.claim(kDeviceA), -1);
  enter(JobPhase::running);
  EXPECT_EQ(test.claim(kDeviceA), -1);
  test.dispatcher.note_ready();
  EXPECT_EQ(test.claim(kDeviceA), 0);
}

TEST(Dispatcher, LetsAnIdleDeviceStealAReadyUnit) {
  Dispatching test(2);
  const JobId job = test.add_job(1);
  EXPECT_EQ(test.claim(kDeviceA), 0);
  EXPECT_EQ(test.claim(kDeviceA), 1);
  test.prefetch(kDeviceA, {job, 1});
  EXPECT_EQ(test.steal(kDeviceB), -1) << "its predecessor runs";
  test.finish(job, 0);
  test.dispatcher.note_state(test.tables, test.memory, kDeviceA);
  EXPECT_EQ(test.steal(kDeviceB), 1);
  EXPECT_EQ(test.tables.state({job, 1}).device, kDeviceB);
  EXPECT_FALSE(test.tables.of(kDeviceA).next);
  EXPECT_EQ(test.steal(kDeviceB), -1);
}

TEST(Dispatcher, StealsNoUnitOfSeveralTracks) {
  Dispatching test(2);
  const JobId job = test.add_job(2);
  EXPECT_EQ(test.claim(kDeviceA), 0);
  test.prefetch(kDeviceA, {job, 0});
  EXPECT_EQ(test.steal(kDeviceB), -1);
}

TEST(Dispatcher, VisitsIdleThenTouchedDevices) {
  Dispatching test(3);
  EXPECT_TRUE(test.driven().empty());
  test.tables.of(kDeviceA).running.push_back(ActionId(1));
  test.dispatcher.note_state(test.tables, test.memory, kDeviceA);
  for (const DeviceId id : {kDeviceA, kDeviceB}) test.dispatcher.touch(id);
  EXPECT_EQ(test.driven(), (std::vector{kDeviceB, kDeviceA}));
  EXPECT_TRUE(test.driven().empty());
  test.dispatcher.touch(DeviceId(2));
  EXPECT_EQ(test.driven(), (std::vector{DeviceId(2)}));
}

TEST(Dispatcher, OffersReadyUnitsToANewDevice) {
  Dispatching test(1);
  test.add_job(1, {.avoided = {kDeviceA}});
  test.tables.devices.push_back({.budget = 100});
  test.memory.add_device(100);
  test.dispatcher.add_device();
  test.dispatcher.note_state(test.tables, test.memory, kDeviceB);
  EXPECT_EQ(test.driven(), (std::vector{kDeviceA, kDeviceB}));
  EXPECT_EQ(test.claim(kDeviceB), 0);
}

}  // namespace
}  // namespace spillway
