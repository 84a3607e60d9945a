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

/// The journal of a run that goes on, and its process's claim to the folder. Written on the one
/// thread of `writer`, so that training waits for no disk: note() returns at once. What cannot be
/// written is tried again with what comes next. Any thread.
class RunJournal {
 public:
  /// In the folder of the lock. Throws what Journal throws.
  RunJournal(RunLock lock, boost::asio::thread_pool& writer);

  /// Of a trial, or nothing where it was not submitted.
  std::optional<JournalTrial> find(const std::string& client_id);
  std::vector<JournalTrial> trials();
  /// It counts as submitted once this returns. Throws what Journal::submit() throws.
  void submit(const std::string& client_id, const std::string& config);

  using Change = std::function<void(Journal&)>;
  void note(Change change);
  /// As note(), at once; on the writer's thread.
  void add(Change change);
  /// Waits until everything noted is written. Throws what keeps it from that.
  void flush();

 private:
  /// On the writer's thread; waits for it and throws what it throws.
  void on_writer(const std::function<void()>& work);
  void write();

  boost::asio::thread_pool& writer_;
  RunLock lock_;
  // Of the writer's thread:
  Journal journal_;
  std::deque<Change> unwritten_;
  std::exception_ptr problem_;  ///< why they are
  std::exception_ptr refused_;  ///< why one was given up; told once
};

}  // namespace spillway
