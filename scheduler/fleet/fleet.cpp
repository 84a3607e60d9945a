#include "scheduler/fleet/fleet.h"

#include <algorithm>
#include <utility>

namespace spillway {

Fleet::Fleet(int number, int size) : number_(number), size_(size) {}

std::set<int> Fleet::hosts() const {
  std::set<int> left;
  for (int host = 0; host < size_; ++host) {
    if (!lost_.contains(host)) left.insert(host);
  }
  return left;
}

void Fleet::begin_round(std::int64_t round) {
  has_agreed_ = false;
  round_ = round;
  resting_.reset();
  calls_to_rest_ = true;
}

/// In a round that has not been agreed on, a loss changes no more than the word.
void Fleet::lose(int host) {
  if (lost_.insert(host).second) renew();
}

void Fleet::renew() {
  if (has_agreed_) begin_round(round_ + 1);
}

void Fleet::restart() { begin_round(round_ + 1); }

void Fleet::hear(int from, const HostWord& word) {
  if (lost_.contains(from)) return;
  const HostWord before = std::exchange(words_[from], word);
  if (word.round > round_) begin_round(word.round);
  // It has begun more jobs since, so it will not agree to this round.
  if (word.round == round_ && word != before) renew();
  for (int host : word.lost) lose(host);
}

void Fleet::rest(std::int64_t round, const RestingJobs& jobs) {
  if (!has_agreed_ && round == round_) resting_ = jobs;
}

bool Fleet::take_call_to_rest() { return std::exchange(calls_to_rest_, false); }

std::optional<HostWord> Fleet::take_word() {
  if (has_agreed_ || !resting_) return std::nullopt;
  HostWord word{round_, lost_, *resting_};
  if (words_[number_] == word) return std::nullopt;
  return words_[number_] = std::move(word);
}

std::optional<Agreement> Fleet::take_agreement() {
  if (has_agreed_ || !resting_) return std::nullopt;
  Agreement agreement{.round = round_, .hosts = hosts()};
  for (int host : agreement.hosts) {
    const HostWord& word = words_[host];  // of round 0: it has told nothing yet
    const bool is_same =
        word.round == round_ && word.lost == lost_ && word.jobs.begun == resting_->begun;
    if (!is_same) return std::nullopt;
  }
  std::map<int, std::int64_t> least;  // steps
  for (int host : agreement.hosts) {
    agreement.must_restart |= words_.at(host).jobs.must_restart;
    for (const auto& [job, steps] : words_.at(host).jobs.steps) {
      const auto known = least.try_emplace(job, steps).first;
      known->second = std::min(known->second, steps);
    }
  }
  for (int host : agreement.hosts) {
    for (const auto& [job, steps] : words_.at(host).jobs.steps) {
      if (steps == least.at(job)) {
        agreement.computing[job].insert(host);
      } else {
        agreement.ahead[job].insert(host);
      }
    }
  }
  has_agreed_ = true;
  return agreement;
}

}  // namespace spillway
