#include "trainer/journal/journal.h"

#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <span>
#include <thread>

#include "core/base/xxh3.h"
#include "core/os/file_system.h"
#include "spillway/error.h"

namespace spillway {
namespace {

/// "Spwy", in the header of the file.
constexpr std::int64_t kApplication = 0x53707779;
constexpr const char* kTable =
    "CREATE TABLE trials(number INTEGER PRIMARY KEY, client_id TEXT NOT NULL UNIQUE, "
    "config TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, result TEXT NOT NULL, "
    "generation INTEGER NOT NULL, step INTEGER NOT NULL, xxh3 TEXT NOT NULL) STRICT";
constexpr const char* kColumns = "client_id, config, state, reason, result, generation, step, xxh3";
/// Value of the column `generation` if no checkpoint is committed.
constexpr std::int64_t kNone = -1;

[[noreturn]] void reject(const SqlFile& file, const std::string& problem) {
  throw CorruptData(file.path(), problem + "; restore a copy, or move it and its -wal file away");
}

std::int64_t generation_of(const JournalTrial& trial) {
  return trial.committed ? static_cast<std::int64_t>(trial.committed->generation) : kNone;
}

std::int64_t step_of(const JournalTrial& trial) {
  return trial.committed ? static_cast<std::int64_t>(trial.committed->step) : 0;
}

/// The hash of a row's fields; each text is preceded by its length.
std::string hash_of(const JournalTrial& trial) {
  std::string all;
  for (const auto* text :
       {&trial.client_id, &trial.config, &trial.state, &trial.reason, &trial.result})
    all += fmt::format("{}:{}", text->size(), *text);
  all += fmt::format("{}:{}", generation_of(trial), step_of(trial));
  return xxh3(std::as_bytes(std::span(all)));
}

/// The current row of a query of kColumns. Throws CorruptData.
JournalTrial row(const SqlFile& file, const SqlStatement& at) {
  JournalTrial trial{.client_id = at.text(0),
                     .config = at.text(1),
                     .state = at.text(2),
                     .reason = at.text(3),
                     .result = at.text(4)};
  if (at.number(5) != kNone)
    trial.committed = {.generation = static_cast<std::uint64_t>(at.number(5)),
                       .step = static_cast<std::uint64_t>(at.number(6))};
  if (hash_of(trial) != at.text(7))
    reject(file, fmt::format("is damaged: the row of trial '{}' does not match its hash",
                             trial.client_id));
  return trial;
}

/// Parameters 1 to 8 are kColumns.
void store(SqlStatement statement, const JournalTrial& trial) {
  statement.bind(1, trial.client_id).bind(2, trial.config).bind(3, trial.state);
  statement.bind(4, trial.reason).bind(5, trial.result);
  statement.bind(6, generation_of(trial)).bind(7, step_of(trial)).bind(8, hash_of(trial));
  statement.step();
}

void make_table(SqlFile& file) {
  file.run(kTable);
  file.run(fmt::format("PRAGMA application_id = {}", kApplication));
  file.run(fmt::format("PRAGMA user_version = {}", Journal::kVersion));
}

/// Throws unless the file is a journal of this version.
void check_kind(SqlFile& file) {
  if (file.number("PRAGMA application_id") != kApplication)
    reject(file, "is a database, but not a journal of Spillway");
  const auto version = file.number("PRAGMA user_version");
  if (version > Journal::kVersion)
    throw NewerFormat(file.path(), static_cast<std::uint64_t>(version), Journal::kVersion);
  if (version < Journal::kVersion)
    reject(file, fmt::format("is damaged: no journal has version {}", version));
}

void check_content(SqlFile& file) {
  const auto found = file.text("PRAGMA integrity_check(1)");
  if (found != "ok") reject(file, "is damaged: " + found);
  if (file.text("SELECT group_concat(sql) FROM sqlite_schema") != kTable)
    reject(file, "is damaged: it does not have the tables of a journal");
}

/// Retries: two processes that do this at once block each other, and SQLite lets neither wait.
std::string switch_to_log(SqlFile& file) {
  for (int attempts_left = 100;; --attempts_left) {
    try {
      return file.text("PRAGMA journal_mode = WAL");
    } catch (const DatabaseInUse&) {
      if (attempts_left == 0) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace

Journal::Journal(const std::filesystem::path& file) : file_(file) {
  create_or_check();
  // A commit syncs the log and then copies it to the database: SQLite silently truncates a log at
  // the first damaged page.
  if (switch_to_log(file_) != "wal")
    throw Error(file_.path() + " is on a file system without shared memory; choose another one");
  file_.run("PRAGMA synchronous = FULL");
  file_.run("PRAGMA wal_autocheckpoint = 1");
  trials();
}

void Journal::create_or_check() {
  SqlTransaction transaction(file_);
  const bool is_new = file_.number("SELECT count(*) FROM sqlite_schema") == 0 &&
                      file_.number("PRAGMA application_id") == 0;
  if (is_new) make_table(file_);
  check_kind(file_);
  check_content(file_);
  transaction.commit();
  if (is_new)
    posix_file_system().sync_folder(std::filesystem::absolute(file_.path()).parent_path());
}

Journal::Submission Journal::submit(const std::string& client_id, const std::string& config) {
  if (client_id.empty()) throw ConfigError("client_id", 0, "is empty; give each trial its own");
  SqlTransaction transaction(file_);
  if (auto known = find(client_id)) {
    if (known->config == config) return {.is_new = false, .trial = std::move(*known)};
    throw ConfigError("client_id", 0,
                      fmt::format("'{}' was submitted before with another configuration; choose "
                                  "another id, or submit the same configuration",
                                  client_id));
  }
  const JournalTrial trial{.client_id = client_id, .config = config};
  store(file_.prepare(
            fmt::format("INSERT INTO trials({}) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)", kColumns)),
        trial);
  transaction.commit();
  return {.is_new = true, .trial = trial};
}

void Journal::set_state(const std::string& client_id, const std::string& state,
                        const std::string& reason) {
  update(client_id, [&](JournalTrial& trial) {
    trial.state = state;
    trial.reason = reason;
  });
}

void Journal::set_config(const std::string& client_id, const std::string& config) {
  update(client_id, [&](JournalTrial& trial) { trial.config = config; });
}

void Journal::set_result(const std::string& client_id, const std::string& result_json) {
  update(client_id, [&](JournalTrial& trial) { trial.result = result_json; });
}

void Journal::committed(const std::string& client_id, std::uint64_t generation,
                        std::uint64_t step) {
  update(client_id, [&](JournalTrial& trial) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (generation > kMost || step > kMost)
      throw Error(fmt::format("generation {} and step {} must be below 2^63", generation, step));
    trial.committed = {generation, step};
  });
}

std::vector<JournalTrial> Journal::trials() {
  auto rows = file_.prepare(fmt::format("SELECT {} FROM trials ORDER BY number", kColumns));
  std::vector<JournalTrial> all;
  while (rows.step()) all.push_back(row(file_, rows));
  return all;
}

std::optional<JournalTrial> Journal::find(const std::string& client_id) {
  auto rows = file_.prepare(fmt::format("SELECT {} FROM trials WHERE client_id = ?1", kColumns));
  rows.bind(1, client_id);
  if (!rows.step()) return std::nullopt;
  return row(file_, rows);
}

void Journal::update(const std::string& client_id,
                     const std::function<void(JournalTrial&)>& change) {
  SqlTransaction transaction(file_);
  auto trial = find(client_id);
  if (!trial)
    throw ConfigError("client_id", 0,
                      fmt::format("'{}' was not submitted to {}", client_id, file_.path()));
  const JournalTrial before = *trial;
  change(*trial);
  if (*trial == before) return;
  store(file_.prepare("UPDATE trials SET config = ?2, state = ?3, reason = ?4, result = ?5, "
                      "generation = ?6, step = ?7, xxh3 = ?8 WHERE client_id = ?1"),
        *trial);
  transaction.commit();
}

}  // namespace spillway
