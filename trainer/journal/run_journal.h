#pragma once

#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/journal/journal.h"
#include "trainer/storage/run_lock.h"

namespace spillway {

inline constexpr const char* kJournalFile = "journal.sqlite";

/// The journal of a running run, with the lock of its folder. The single thread of `writer` writes
/// it, so that training never waits for the disk: note() returns at once. The next change retries a
/// failed write. Thread-safe.
class RunJournal {
 public:
  /// Opens the journal in the lock's folder. Throws what Journal throws.
  RunJournal(RunLock lock, boost::asio::thread_pool& writer);

  /// Nullopt if the trial was not submitted.
  std::optional<JournalTrial> find(const std::string& client_id);
  std::vector<JournalTrial> trials();
  /// The submission is durable when this returns. Throws what Journal::submit() throws.
  void submit(const std::string& client_id, const std::string& config);
  /// The same for a new configuration. Throws what Journal::set_config() throws.
  void set_config(const std::string& client_id, const std::string& config);

  using Change = std::function<void(Journal&)>;
  void note(Change change);
  /// Like note(), but writes at once; call on the writer's thread.
  void add(Change change);
  /// Waits until all changes are written. Throws the error if that fails.
  void flush();
  /// RunLock::end_in_order()
  void end_in_order() const { lock_.end_in_order(); }
  /// RunLock::keep_mark()
  void keep_mark() { lock_.keep_mark(); }

 private:
  /// Runs `work` on the writer's thread, waits for it, and throws what it throws.
  void on_writer(const std::function<void()>& work);
  void write();

  boost::asio::thread_pool& writer_;
  RunLock lock_;
  // Used by the writer's thread only:
  Journal journal_;
  std::deque<Change> unwritten_;
  std::exception_ptr problem_;  ///< why the last write failed
  std::exception_ptr refused_;  ///< why a change was dropped; thrown once
};

}  // namespace spillway
