#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/journal/sqlite.h"

namespace spillway {

/// A durable checkpoint: its generation, and the number of steps committed in it.
struct CommittedGeneration {
  std::uint64_t generation = 0, step = 0;
  bool operator==(const CommittedGeneration&) const = default;
};

/// A trial as stored in the journal.
struct JournalTrial {
  std::string client_id;
  std::string config;             ///< as submitted, or as set_config() changed it
  std::string state = "waiting";  ///< set by the caller
  std::string reason;
  std::string result;  ///< JSON; empty: none yet
  std::optional<CommittedGeneration> committed;
  bool operator==(const JournalTrial&) const = default;
};

/// The journal of a run: its submitted trials and their states, in an SQLite file
/// (docs/formats.md). A change is on stable storage when the call returns. A call that throws
/// changes nothing; but after IoError a crash of the machine may leave its change.
/// Other processes may use the file too. One thread at a time.
///
/// Everything throws IoError, and CorruptData or NewerFormat for an invalid file.
class Journal {
 public:
  static constexpr std::int64_t kVersion = 1;

  /// Opens or creates the file and checks all of it.
  explicit Journal(const std::filesystem::path& file);

  struct Submission {
    bool is_new = false;
    JournalTrial trial;  ///< as it is now
  };
  /// Adds a trial. Submitting the same trial again changes nothing. Throws ConfigError
  /// (`client_id`) if the id is empty or was submitted with another config.
  Submission submit(const std::string& client_id, const std::string& config);

  /// These throw ConfigError (`client_id`) if the trial was not submitted.
  void set_state(const std::string& client_id, const std::string& state,
                 const std::string& reason = "");
  void set_config(const std::string& client_id, const std::string& config);
  void set_result(const std::string& client_id, const std::string& result_json);
  /// Throws Error if a number is too large.
  void committed(const std::string& client_id, std::uint64_t generation, std::uint64_t step);

  /// Nullopt if the trial was not submitted.
  std::optional<JournalTrial> find(const std::string& client_id);
  /// In order of submission.
  std::vector<JournalTrial> trials();

 private:
  void create_or_check();
  void update(const std::string& client_id, const std::function<void(JournalTrial&)>& change);

  SqlFile file_;
};

}  // namespace spillway
