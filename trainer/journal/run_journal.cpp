#include "trainer/journal/run_journal.h"

#include <boost/asio/post.hpp>
#include <future>
#include <utility>

#include "spillway/error.h"
#include "trainer/journal/sqlite.h"

namespace spillway {

RunJournal::RunJournal(RunLock lock, boost::asio::thread_pool& writer)
    : writer_(writer), lock_(std::move(lock)), journal_(lock_.folder() / kJournalFile) {}

std::optional<JournalTrial> RunJournal::find(const std::string& client_id) {
  std::optional<JournalTrial> found;
  on_writer([&] { found = journal_.find(client_id); });
  return found;
}

std::vector<JournalTrial> RunJournal::trials() {
  std::vector<JournalTrial> found;
  on_writer([&] { found = journal_.trials(); });
  return found;
}

void RunJournal::submit(const std::string& client_id, const std::string& config) {
  on_writer([&] { journal_.submit(client_id, config); });
}

void RunJournal::set_config(const std::string& client_id, const std::string& config) {
  on_writer([&] { journal_.set_config(client_id, config); });
}

void RunJournal::note(Change change) {
  boost::asio::post(writer_,
                    [this, change = std::move(change)]() mutable { add(std::move(change)); });
}

void RunJournal::add(Change change) {
  unwritten_.push_back(std::move(change));
  write();
}

void RunJournal::flush() {
  on_writer([this] {
    write();
    if (refused_) std::rethrow_exception(std::exchange(refused_, nullptr));
    if (problem_) std::rethrow_exception(problem_);
  });
}

void RunJournal::on_writer(const std::function<void()>& work) {
  std::packaged_task<void()> task([&] { work(); });
  auto done = task.get_future();
  boost::asio::post(writer_, std::move(task));
  done.get();
}

void RunJournal::write() {
  problem_ = nullptr;
  while (!unwritten_.empty()) {
    try {
      unwritten_.front()(journal_);
    } catch (const IoError&) {
      problem_ = std::current_exception();
      return;
    } catch (const DatabaseInUse&) {
      problem_ = std::current_exception();
      return;
    } catch (const std::exception&) {  // a permanent error must not block later changes
      refused_ = std::current_exception();
    }
    unwritten_.pop_front();
  }
}

}  // namespace spillway
