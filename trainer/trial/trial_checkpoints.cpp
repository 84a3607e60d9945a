#include "trainer/trial/trial_checkpoints.h"

#include <boost/asio/post.hpp>
#include <memory>
#include <utility>

#include "spillway/error.h"
#include "trainer/checkpoint/generation_writer.h"
#include "trainer/profile/profile_cache.h"
#include "trainer/trial/trial_contract.h"

namespace spillway {
namespace {

void require_equal(const Contract& then, const Contract& now, const std::string& folder) {
  const auto different = changes_since(then, now);
  if (different.empty()) return;
  throw ConfigError("checkpoint", 0,
                    "in '" + folder + "' is of another contract:" + explain(different) +
                        ", or choose another output_dir");
}

}  // namespace

Bytes most_checkpoint_bytes(const TrialConfig& trial, const ModelSpec& model,
                            const StatePlaces& places) {
  if (trial.checkpoint.keep == 0) return 0;
  // Only the length of the samples' hash counts here; computing it would read all samples.
  const GenerationContent content{
      .job = trial.name,
      .build = this_build_and_machine(),
      .contract = contract_of(trial, model, std::string(32, '0'), "cpu"),
      .files = places.files(nullptr, nullptr, TrialHistory())};
  return static_cast<Bytes>(trial.checkpoint.keep + 1) *
         generation_bytes(content, CheckpointOptions().block_bytes);
}

TrialCheckpoints::TrialCheckpoints(const CheckpointConfig& config, std::string trial,
                                   Contract contract, FileSystem& files,
                                   boost::asio::thread_pool& writer, Record record, Report report)
    : config_(config),
      trial_(std::move(trial)),
      contract_(std::move(contract)),
      files_(files),
      writer_(writer),
      record_(std::move(record)),
      report_(std::move(report)) {}

void TrialCheckpoints::open() {
  if (store_) return;
  make_folders(config_.folder);
  store_.emplace(files_, config_.folder, CheckpointOptions{.keep = config_.keep});
}

TrialCheckpoints::Newest TrialCheckpoints::open_newest() {
  if (!std::filesystem::exists(config_.folder)) return {};
  open();
  CheckpointStore::Newest newest;
  try {
    newest = store_->open_newest();
  } catch (const CorruptData& error) {
    newest.findings.push_back({.problem = error.what()});
  }
  if (newest.generation) {
    const Manifest& manifest = newest.generation->manifest();
    require_equal(manifest.contract, contract_, config_.folder.string());
    last_saved_ = static_cast<std::int64_t>(manifest.step);
  }
  return {std::move(newest.generation), std::move(newest.findings)};
}

void TrialCheckpoints::attach(const StatePlaces& places, const std::byte* home, StateGate& gate) {
  places_ = &places;
  home_ = home;
  gate_ = &gate;
}

bool TrialCheckpoints::is_saving() const {
  return saving_.valid() && saving_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

bool TrialCheckpoints::is_due(std::int64_t step) const {
  if (is_saving()) return false;
  const std::chrono::duration<double> passed = Clock::now() - last_begun_;
  return (config_.every_steps > 0 && step % config_.every_steps == 0) ||
         (config_.every_s > 0 && passed.count() >= config_.every_s);
}

GenerationContent TrialCheckpoints::content(const TrialHistory& history) const {
  return {.job = trial_,
          .step = static_cast<std::uint64_t>(history.num_steps()),
          .build = this_build_and_machine(),
          .contract = contract_,
          .files = places_->files(home_, gate_, history)};
}

void TrialCheckpoints::save(TrialHistory history) {
  wait();
  last_begun_ = Clock::now();
  const std::int64_t step = begun_step_ = history.num_steps();
  auto task = std::make_shared<std::packaged_task<void()>>(
      [this, history = std::move(history)] { write(history); });
  saving_ = task->get_future();
  // One writer serves all trials, so it must not wait for any of them; they wait for it.
  gate_->begin_snapshot(step, [this, task] { boost::asio::post(writer_, [task] { (*task)(); }); });
}

void TrialCheckpoints::save_unless_saved(TrialHistory history) {
  if (begun_step_ != history.num_steps()) save(std::move(history));
}

void TrialCheckpoints::write(const TrialHistory& history) {
  Saved saved{.step = history.num_steps()};
  const auto begin = Clock::now();
  try {
    const GenerationContent generation = content(history);
    for (const GenerationFile& file : generation.files) saved.bytes += file.bytes;
    auto committed = store_->write(
        generation, [&](std::uint64_t number) { record_(number, history.num_steps()); });
    saved.generation = committed.generation;
    saved.findings = std::move(committed.findings);
    last_saved_ = history.num_steps();
  } catch (const std::exception& error) {
    saved.problem = error.what();
  }
  gate_->end_snapshot();
  saved.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  report_(saved);
}

void TrialCheckpoints::wait() {
  if (saving_.valid()) saving_.get();
}

void TrialCheckpoints::save_last(TrialHistory history) {
  wait();
  if (last_saved_ == history.num_steps()) return;
  save(std::move(history));
  wait();
}

}  // namespace spillway
