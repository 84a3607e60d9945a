#include "trainer/profile/pilot.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "models/base/compute_type.h"
#include "models/families/gpt.h"
#include "models/families/mlp.h"
#include "scheduler/plan/lower.h"
#include "scheduler/plan/need.h"
#include "scheduler/plan/partition.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/tiny_gpt.h"
#include "tests/support/run/training_run.h"
#include "trainer/profile/dispatch_latency.h"
#include "trainer/profile/host_rates.h"

namespace spillway::testing {
namespace {

bool equal(const LayerProfile& a, const LayerProfile& b) {
  return a.forward_s == b.forward_s && a.backward_s == b.backward_s &&
         a.forward_peak == b.forward_peak && a.graph_peak == b.graph_peak &&
         a.graph_retained == b.graph_retained && a.backward_peak == b.backward_peak;
}

GptConfig medium_gpt() {
  GptConfig config;
  config.num_hidden_layers = 2;
  config.hidden_size = 192;
  config.max_position_embeddings = 128;
  config.dropout = 0;
  return config;
}

std::array<double, 3> rates_of(const Profile& profile) {
  return {profile.copy_bytes_per_s, profile.update_bytes_per_s, profile.reduce_bytes_per_s};
}

TEST(Pilot, KnowsFromItsCacheWhatItMeasuredBefore) {
  const TemporaryFolder folder;
  const auto file = folder / "deep/pilot.json";
  const auto model = make_gpt(tiny_gpt(), 2);
  const auto quiet = [] { return 0.0; };
  const Profile measured = Pilot(file, quiet).measure(*model);
  const Profile again = Pilot(file, quiet).measure(*model);
  const Profile anew = Pilot().measure(*model);
  bool all_equal = true;
  for (std::size_t l = 0; l < measured.layers.size(); ++l) {
    EXPECT_TRUE(equal(measured.layers[l], again.layers[l])) << l;
    EXPECT_EQ(measured.layers[l].backward_peak, anew.layers[l].backward_peak) << l;
    all_equal = all_equal && equal(measured.layers[l], anew.layers[l]);
  }
  EXPECT_FALSE(all_equal) << "the control: times measured anew differ";
  EXPECT_EQ(rates_of(measured), rates_of(again));
  EXPECT_NE(rates_of(measured), rates_of(anew)) << "the control";
}

TEST(Pilot, MeasuresLayersWithoutGradientsOfInputsApart) {
  GptConfig config = tiny_gpt();
  config.freeze = {"h.*"};
  const auto model = make_gpt(config, 2);
  const ModelSpec& spec = model->spec;
  ASSERT_EQ(spec.layers[1].kind, spec.layers[3].kind);
  const auto peaks = [&] {
    const Profile profile = Pilot().measure(*model);
    return std::pair(profile.layers[1].backward_peak, profile.layers[3].backward_peak);
  };
  const auto [first, second] = peaks();
  EXPECT_EQ(first, second) << "the control";
  model->spec.edges[at(spec.layers[1].inputs[0])].differentiable = false;
  const auto [first_now, second_now] = peaks();
  EXPECT_LT(first_now, second_now);
  EXPECT_EQ(second_now, second);
}

/// Admits one graph at a time.
class LeasedLayer final : public Layer {
 public:
  explicit LeasedLayer(std::unique_ptr<Layer> layer) : layer_(std::move(layer)) {}
  LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                      const LayerContext& context) const override {
    auto lease = std::make_shared<std::unique_lock<std::mutex>>(mutex_, std::try_to_lock);
    if (!lease->owns_lock()) throw Error("a second graph");
    LayerResult result = layer_->forward(inputs, params, context);
    result.lease = std::move(lease);
    return result;
  }

 private:
  const std::unique_ptr<Layer> layer_;
  mutable std::mutex mutex_;
};

TEST(Pilot, MakesOneGraphAtATimeOfALayerWithALease) {
  const auto model = make_gpt(tiny_gpt(), 2);
  ASSERT_EQ(model->spec.layers[1].kind, model->spec.layers[3].kind);
  const Profile expected = Pilot().measure(*model);
  for (std::size_t l : {1u, 3u}) {
    model->spec.layers[l].keeps_graph = false;
    model->layers[l] = std::make_unique<LeasedLayer>(std::move(model->layers[l]));
  }
  const Profile measured = Pilot().measure(*model);
  EXPECT_EQ(measured.layers[1].backward_peak, expected.layers[1].backward_peak);
  model->spec.layers[1].keeps_graph = true;
  EXPECT_THROW(Pilot().measure(*model), Error) << "the control";
}

/// As on a GPU, which has no memory for it but its own.
TEST(Pilot, MeasuresWithTheMemoryOfADevice) {
  const auto model = make_gpt(tiny_gpt(), 2);
  const MemorySplit split{0.5};
  const Profile expected = Pilot().measure(*model);
  const Bytes least =
      partition(model->spec, expected, {.split = split}, 0, OrderChoice::shard_major, false)
          .smallest_budget;
  const auto device = make_cpu_device("cpu", least, {.split = split});
  const Profile measured = Pilot().measure(*model, device.get());
  for (std::size_t l = 0; l < expected.layers.size(); ++l) {
    EXPECT_EQ(measured.layers[l].forward_peak, expected.layers[l].forward_peak) << l;
    EXPECT_EQ(measured.layers[l].graph_retained, expected.layers[l].graph_retained) << l;
    EXPECT_EQ(measured.layers[l].backward_peak, expected.layers[l].backward_peak) << l;
    EXPECT_GT(measured.layers[l].backward_s, 0) << l;
  }
  EXPECT_EQ(device->activations().in_use(), 0u);
  const double link = 64 << 20;
  const auto far = make_cpu_device("cpu", 8_MiB, {.link_bytes_per_s = 64_MiB, .split = split});
  EXPECT_LT(Pilot().measure(*model, far.get()).copy_bytes_per_s, 1.01 * link);
}

/// Which part of the memory lacks room is said.
TEST(Pilot, NamesALayerThatIsTooLargeAlone) {
  const auto model = make_gpt(tiny_gpt(), 2);
  for (const auto& [share, remedy] : {std::pair{0.1, "raise"}, {0.9, "lower"}}) {
    const auto small = make_cpu_device("cpu", 160_KiB, {.split = {share}});
    const auto refusal = thrown<DoesNotFit>([&] { Pilot().measure(*model, small.get()); });
    const std::string said = refusal.what();
    EXPECT_EQ(said.find("layer h.0.attn alone does not fit: "), 0u) << said;
    EXPECT_TRUE(said.ends_with(std::string("; or ") + remedy + " activation_share")) << said;
    EXPECT_GT(refusal.needed, small->budget());
  }
}

TEST(Pilot, KeepsTheContentionOfALayerAndOfANumberOfThreads) {
  const TemporaryFolder folder;
  const auto file = folder / "pilot.json";
  const auto model = make_gpt(tiny_gpt(), 2);
  const auto quiet = [] { return 0.0; };
  Pilot pilot(file, quiet);
  const Profile profile = pilot.measure(*model);
  const double measured = pilot.measure_contention(2, *model, profile);
  EXPECT_GE(measured, 1);
  EXPECT_EQ(Pilot(file, quiet).measure_contention(2, *model, profile), measured);
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  EXPECT_GT(Pilot(file, quiet).measure_contention(8 * cores, *model, profile), measured);
  const double estimated = pilot.estimate_contention(2);
  EXPECT_NE(estimated, measured);
  EXPECT_EQ(Pilot(file, quiet).estimate_contention(2), estimated);
}

TEST(Pilot, KeepsWhatAnOpOfASlowedDeviceTakesBesidesItsLayers) {
  const TemporaryFolder folder;
  const auto file = folder / "pilot.json";
  const auto model = make_gpt(tiny_gpt(), 2);
  const auto device = make_cpu_device("cpu", 8_MiB, {.slowdown = 8});
  const auto quiet = [] { return 0.0; };
  const auto start = [&](const std::string& kind, const Pilot::Devices& devices) {
    return Pilot(file, quiet).measure_op_start(kind, devices, *model);
  };
  const double measured = start("slow", {device.get()});
  EXPECT_GT(measured, 1e-9) << "what it says of no time at all";
  EXPECT_EQ(start("slow", {device.get()}), measured);
  EXPECT_NE(start("other", {device.get()}), measured);
  const auto second = make_cpu_device("second", 8_MiB, {.slowdown = 8});
  EXPECT_NE(start("slow", {device.get(), second.get()}), measured);
}

TEST(HostRates, ExpectAMeanWithoutFirstCallsAndPauses) {
  EXPECT_EQ(expected({7}), 7);
  EXPECT_EQ(expected({100, 1, 2, 6}), 3);
  EXPECT_EQ(expected({100, 1, 2, 4, 40, 1, 2, 2}), 11.0 / 5) << "one of them was a pause";
}

TEST(HostRates, TimeAShortCallManyTimes) {
  int calls = 0;
  EXPECT_GE(expected_seconds([&] { ++calls; }), 0);
  EXPECT_GT(calls, 100);
}

TEST(HostRates, RiseWhereMoreThreadsThanCoresCrowd) {
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  EXPECT_GT(measure_contention(16 * cores, matrix_product), 1.5);
}

TEST(HostRates, IncludeTheDelayOfASlowLink) {
  EXPECT_EQ(measure_link_delay(0, 1), 0);
  EXPECT_GE(measure_link_delay(640, 1), 0.05) << "64 bytes at 640 a second";
}

TEST(HostRates, IncludeTheTimeToHandOverAnOp) {
  const double seconds = measure_dispatch_latency();
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 1);
}

ProfileCache cache_of(const std::filesystem::path& file, const std::string& made_by = "this build",
                      double load = 0) {
  return {file, [=] { return made_by; }, [=] { return load; }};
}

TEST(ProfileCache, ReplacesADamagedFile) {
  const TemporaryFolder folder;
  const auto file = folder / "pilot.json";
  const auto write = [&] {
    ProfileCache cache = cache_of(file);
    cache.add("layer", {.forward_s = 0.25, .backward_peak = 7}, {});
    cache.save();
  };
  const auto known = [&](const std::string& made_by) {
    return cache_of(file, made_by).find("layer").has_value();
  };
  write();
  EXPECT_TRUE(known("this build"));
  EXPECT_EQ(cache_of(file).find("layer")->backward_peak, 7u);
  EXPECT_FALSE(known("another build"));
  const std::string whole = folder.read("pilot.json");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    folder.write("pilot.json", damaged);
    const auto found = cache_of(file).find("layer");
    EXPECT_TRUE(!found || found->backward_peak == 7) << i;
    folder.write("pilot.json", whole.substr(0, i));
    EXPECT_FALSE(known("this build")) << i;
  }
  write();
  EXPECT_TRUE(known("this build"));
}

/// Programs take turns, and run at the same time.
TEST(ProfileCache, KeepsWhatOthersHaveMeasured) {
  const TemporaryFolder folder;
  const auto file = folder / "pilot.json";
  ProfileCache one = cache_of(file), same = cache_of(file), other = cache_of(file, "another build");
  one.add("layer", {.forward_s = 1}, {.unix_s = 1});
  same.add("layer of same", {.forward_s = 2}, {.unix_s = 2});
  other.add("layer", {.forward_s = 3}, {.unix_s = 3});
  for (ProfileCache* cache : {&one, &same, &other}) cache->save();
  EXPECT_EQ(cache_of(file).find("layer")->forward_s, 1);
  EXPECT_EQ(cache_of(file).find("layer of same")->forward_s, 2);
  EXPECT_EQ(cache_of(file, "another build").find("layer")->forward_s, 3);
  EXPECT_FALSE(cache_of(file, "another build").find("layer of same"));
}

/// Not what it has only read, which another one may have measured again.
TEST(ProfileCache, SavesWhatItHasMeasuredItself) {
  const TemporaryFolder folder;
  const auto file = folder / "pilot.json";
  const auto save = [&](ProfileCache& cache, const char* layer, double seconds) {
    cache.add(layer, {.forward_s = seconds}, {});
    cache.save();
  };
  ProfileCache first = cache_of(file);
  save(first, "layer", 1);
  ProfileCache reader = cache_of(file);
  save(first, "layer", 2);
  save(reader, "another layer", 3);
  EXPECT_EQ(cache_of(file).find("layer")->forward_s, 2);
  EXPECT_EQ(cache_of(file).find("another layer")->forward_s, 3);
}

TEST(ProfileCache, SavesLaterIfAnotherProgramIsSaving) {
  const TemporaryFolder folder;
  const auto file = folder / "pilot.json";
  ProfileCache cache = cache_of(file);
  cache.add("layer", {}, {});
  const int other = ::open((folder / "pilot.json.lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  cache.save();
  EXPECT_FALSE(cache_of(file).find("layer"));
  ::close(other);
  cache.save();
  EXPECT_TRUE(cache_of(file).find("layer"));
}

/// Such as the lock of another user.
TEST(ProfileCache, SavesWithoutALockThatItCannotHave) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "pilot.json.lock");
  ProfileCache cache = cache_of(folder / "pilot.json");
  cache.add("layer", {}, {});
  cache.save();
  EXPECT_TRUE(cache_of(folder / "pilot.json").find("layer"));
}

TEST(ProfileCache, KeepsEightBuilds) {
  const TemporaryFolder folder;
  const auto file = folder / "pilot.json";
  for (int build = 0; build < 9; ++build) {
    ProfileCache cache = cache_of(file, std::to_string(build));
    cache.add("layer", {}, {.unix_s = build});
    cache.save();
  }
  EXPECT_FALSE(cache_of(file, "0").find("layer"));
  for (int build = 1; build < 9; ++build) {
    EXPECT_TRUE(cache_of(file, std::to_string(build)).find("layer")) << build;
  }
}

TEST(ProfileCache, WorksWithoutAFileThatCanBeWritten) {
  ProfileCache cache = cache_of("/proc/no such folder/pilot.json");
  cache.add("layer", {}, {});
  EXPECT_NO_THROW(cache.save());
  EXPECT_TRUE(cache.find("layer").has_value());
}

/// What is no file, has no end or may not be read.
TEST(ProfileCache, ReplacesWhatCannotBeReadWhereItCan) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "folder");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  folder.write("locked", "{}");
  std::filesystem::permissions(folder / "locked", std::filesystem::perms::none);
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_symlink("/dev/zero", folder / "endless");
  for (const std::string name :
       {"folder", "pipe", "locked", "loop", "endless", "locked/below a file"}) {
    ProfileCache cache = cache_of(folder / name);
    EXPECT_FALSE(cache.find("layer")) << name;
    cache.add("layer", {}, {});
    EXPECT_NO_THROW(cache.save()) << name;
    const bool can_be_replaced = name != "folder" && name != "locked/below a file";
    EXPECT_EQ(cache_of(folder / name).find("layer").has_value(), can_be_replaced) << name;
  }
  EXPECT_TRUE(std::filesystem::is_directory(folder / "folder"));
}

TEST(ProfileCache, ForgetsOnAQuieterMachineWhatABusyOneTook) {
  const TemporaryFolder folder;
  const auto file = folder / "pilot.json";
  {
    ProfileCache cache = cache_of(file);
    for (const auto& [key, load] : {std::pair{"quiet", 0.05}, {"busy", 0.4}, {"busier", 0.8}}) {
      cache.add(key, {}, {.unix_s = 1, .load = load});
      cache.add_times(key, {}, {.unix_s = 1, .load = load});
      cache.add_copy_rate(key, 1, {.unix_s = 1, .load = load});
    }
    cache.set_rates({1, 1, 1, 1}, {.unix_s = 1, .load = 0.8});
    cache.save();
  }
  const auto known_at = [&](double load) {
    const ProfileCache cache = cache_of(file, "this build", load);
    std::string known;
    for (const char* key : {"quiet", "busy", "busier"}) {
      const bool is_known = cache.find(key).has_value();
      EXPECT_EQ(cache.find_times(key).has_value(), is_known);
      EXPECT_EQ(cache.find_copy_rate(key).has_value(), is_known);
      known += is_known ? std::string(key) + " " : "";
    }
    return known + (cache.rates() ? "rates" : "");
  };
  EXPECT_EQ(known_at(0), "quiet ");
  EXPECT_EQ(known_at(0.35), "quiet busy ");
  EXPECT_EQ(known_at(0.75), "quiet busy busier rates");
}

TEST(Pilot, MeasuresAgainWhatItMeasuredOnABusyMachineOnceItIsQuieter) {
  const TemporaryFolder folder;
  const auto model = make_gpt(tiny_gpt(), 2);
  const auto pilot_at = [&](double load) {
    return Pilot(folder / "pilot.json", [=] { return load; });
  };
  pilot_at(0.5).measure(*model);
  EXPECT_TRUE(pilot_at(0.5).knows(model->spec, nullptr));
  EXPECT_FALSE(pilot_at(0).knows(model->spec, nullptr));
  const auto quiet = [] { return 0.0; };
  EXPECT_TRUE(Pilot(folder / "pilot.json", quiet, BusyCosts::keep).knows(model->spec, nullptr));
  pilot_at(0).measure(*model);
  EXPECT_TRUE(pilot_at(0).knows(model->spec, nullptr));
  EXPECT_TRUE(pilot_at(0.5).knows(model->spec, nullptr));
}

/// The oldest and the busiest of the layers' measurements count.
TEST(Pilot, KnowsWhenAndUnderWhichLoadItMeasured) {
  const TemporaryFolder folder;
  const auto model = make_gpt(tiny_gpt(), 2), other = make_gpt(tiny_gpt(), 4);
  double load = 0.3;
  Pilot pilot(folder / "pilot.json", [&] { return load; });
  pilot.measure(*model);
  const MeasuredAt busy = pilot.measured_at(model->spec, nullptr);
  EXPECT_EQ(busy.load, 0.3);
  EXPECT_NEAR(static_cast<double>(busy.unix_s), static_cast<double>(std::time(nullptr)), 600);
  load = 0.1;
  pilot.measure(*other);
  EXPECT_EQ(pilot.measured_at(other->spec, nullptr).load, 0.1);
  EXPECT_EQ(pilot.measured_at(model->spec, nullptr).load, 0.3);
}

TEST(HostRates, CountTheTimeThatAThreadWaitsAsLoad) {
  EXPECT_GE(measure_load(), 0);
  const auto threads = 8 * std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> busy;
  for (unsigned i = 0; i < threads; ++i) {
    busy.emplace_back([](const std::stop_token& stop) {
      for (volatile int x = 0; !stop.stop_requested();) x = x + 1;
    });
  }
  EXPECT_GT(measure_load(), 0.2) << "the load of other programs adds to it";
}

TEST(Estimate, HasPeaksWithinAFactorOfTwo) {
  Pilot pilot;
  std::vector<std::unique_ptr<Model>> models;
  models.push_back(make_gpt(medium_gpt(), 4));
  GptConfig narrow = medium_gpt();
  narrow.hidden_size = 64;
  narrow.max_position_embeddings = 64;
  narrow.dropout = 0.1;
  models.push_back(make_gpt(narrow, 16));
  models.push_back(make_mlp({.num_hidden_layers = 3, .hidden_size = 512}, 256));
  models.push_back(make_gpt(medium_gpt(), 4));
  compute_with(models.back()->spec, DType::bf16);
  for (const auto& model : models) {
    const Profile measured = pilot.measure(*model), estimated = pilot.estimate(model->spec);
    const auto expect_near = [&](Bytes guess, Bytes real, const std::string& what) {
      EXPECT_GT(guess, real / 2) << model->spec.family << " " << what;
      EXPECT_LT(guess, real * 2) << model->spec.family << " " << what;
    };
    const LayerRange whole{0, static_cast<int>(model->layers.size())};
    const auto workspace = [&](const Profile& profile, bool backward) {
      const NeedTable table(model->spec, profile, JobShape{});
      const RangeNeed need = range_need(table, whole);
      return (backward ? need.backward() : need.forward()).workspace;
    };
    expect_near(workspace(estimated, false), workspace(measured, false), "forward");
    expect_near(workspace(estimated, true), workspace(measured, true), "backward");
    for (std::size_t l = 0; l < measured.layers.size(); ++l) {
      expect_near(estimated.layers[l].backward_peak, measured.layers[l].backward_peak,
                  model->spec.layers[l].name);
    }
  }
}

TEST(Estimate, IsForPlansOnly) {
  SessionConfig config = session_of(1, kAmple);
  config.estimate = true;
  Session session(config);
  session.submit(tiny_trial());
  EXPECT_GT(session.simulate().wall_s, 0);
  EXPECT_THROW(session.run(), std::exception);
}

}  // namespace
}  // namespace spillway::testing
