#include "trainer/trial/trial_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <memory>
#include <ranges>
#include <utility>

#include "spillway/error.h"
#include "trainer/checkpoint/generation_writer.h"
#include "trainer/config/train_changes.h"
#include "trainer/profile/profile_cache.h"
#include "trainer/trial/trial_contract.h"

namespace spillway {
namespace {

bool is_of_changes(const ContractDifference& difference) { return difference.field == kChanges; }

/// One of the two may know of changes that were made later.
bool has_same_changes(const Manifest& then, const Contract& now) {
  const auto before = changes_in(then.contract), changes = changes_in(now);
  if (begins_with(before, changes)) return true;
  const auto is_later = [&](const TrainChange& change) {
    return change.step >= static_cast<std::int64_t>(then.step);
  };
  return begins_with(changes, before) &&
         std::all_of(changes.begin() + std::ssize(before), changes.end(), is_later);
}

void require_equal(const Manifest& then, const Contract& now, const std::string& folder) {
  auto different = changes_since(then.contract, now);
  if (has_same_changes(then, now)) std::erase_if(different, is_of_changes);
  if (different.empty()) return;
  throw ConfigError("checkpoint", 0,
                    fmt::format("in '{}' belongs to another contract:{}, or choose another "
                                "output_dir",
                                folder, explain(different)));
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

std::optional<std::int64_t> TrialCheckpoints::newest_step() const {
  if (!std::filesystem::exists(config_.folder)) return std::nullopt;
  for (const std::uint64_t number : std::views::reverse(generations_in(files_, config_.folder))) {
    try {
      const Generation newest(files_, generation_path(config_.folder, number), number);
      return static_cast<std::int64_t>(newest.manifest().step);
    } catch (const Error&) {  // damaged: reported when it is read
    }
  }
  return std::nullopt;
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
    require_equal(manifest, contract_, config_.folder.string());
    last_saved_ = {manifest.step, changes_in(manifest.contract).size()};
  }
  return {std::move(newest.generation), std::move(newest.findings)};
}

void TrialCheckpoints::attach(const StatePlaces& places, const Home& home, StateGate& gate,
                              RemoteState* remote) {
  places_ = &places;
  home_ = &home;
  gate_ = &gate;
  remote_ = remote;
}

bool TrialCheckpoints::is_saving() const {
  return saving_.valid() && saving_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

bool TrialCheckpoints::is_due(std::int64_t step) const {
  if (!store_ || is_saving()) return false;
  const std::chrono::duration<double> passed = Clock::now() - last_begun_;
  return (config_.every_steps > 0 && step % config_.every_steps == 0) ||
         (config_.every_s > 0 && passed.count() >= config_.every_s);
}

GenerationContent TrialCheckpoints::content(const TrialHistory& history) const {
  Contract contract = contract_;
  set_changes(contract, history.changes());
  return {.job = trial_,
          .step = static_cast<std::uint64_t>(history.num_steps()),
          .build = this_build_and_machine(),
          .contract = std::move(contract),
          .files = places_->files(home_, gate_, history, remote_)};
}

void TrialCheckpoints::save(TrialHistory history) {
  if (!store_) return;
  wait();
  last_begun_ = Clock::now();
  const std::int64_t step = history.num_steps();
  begun_ = version_of(history);
  auto task = std::make_shared<std::packaged_task<void()>>(
      [this, history = std::move(history)] { write(history); });
  saving_ = task->get_future();
  // One writer serves all trials, so it must not wait for any of them; they wait for it.
  const auto left = std::make_shared<std::atomic<int>>(remote_ ? 2 : 1);
  const auto ready = [this, task, left] {
    if (--*left == 0) boost::asio::post(writer_, [task] { (*task)(); });
  };
  gate_->begin_snapshot(step, ready);
  if (remote_) remote_->begin(SentState::all, ready);
}

void TrialCheckpoints::save_unless_saved(TrialHistory history) {
  if (begun_ != version_of(history)) save(std::move(history));
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
    last_saved_ = version_of(history);
  } catch (const std::exception& error) {
    saved.problem = error.what();
  }
  if (remote_) remote_->end();
  gate_->end_snapshot();
  saved.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  report_(saved);
}

void TrialCheckpoints::wait() {
  if (saving_.valid()) saving_.get();
}

void TrialCheckpoints::save_last(TrialHistory history) {
  wait();
  if (remote_ || has_saved(history)) return;
  save(std::move(history));
  wait();
}

}  // namespace spillway
