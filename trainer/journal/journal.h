#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/journal/sqlite.h"

namespace spillway {

/// A checkpoint that is durable: its generation, and the steps that are committed in it.
struct CommittedGeneration {
  std::uint64_t generation = 0, step = 0;
  bool operator==(const CommittedGeneration&) const = default;
};

/// What the journal knows of a trial.
struct JournalTrial {
  std::string client_id;
  std::string config;             ///< as it was submitted
  std::string state = "waiting";  ///< in the caller's words
  std::string reason;
  std::string result;  ///< JSON; empty: none yet
  std::optional<CommittedGeneration> committed;
  bool operator==(const JournalTrial&) const = default;
};

/// The journal of a run: which trials were submitted and what became of them, in a file of SQLite
/// (docs/formats.md). What a call has changed is on stable storage when it returns. A call that
/// throws has changed nothing; after IoError a crash of the machine may still leave its change.
/// Other processes may use the file too. One thread at a time.
///
/// Everything throws IoError, and CorruptData or NewerFormat for a file that cannot be believed.
class Journal {
 public:
  static constexpr std::int64_t kVersion = 1;

  /// Opens the file, or makes it, and checks all of it.
  explicit Journal(const std::filesystem::path& file);

  struct Submission {
    bool is_new = false;
    JournalTrial trial;  ///< as it is now
  };
  /// Takes a trial once: the same again is not new and changes nothing. Throws ConfigError
  /// (`client_id`) for an empty one, or one that was submitted with another config.
  Submission submit(const std::string& client_id, const std::string& config);

  /// These throw ConfigError (`client_id`) for one that was not submitted.
  void set_state(const std::string& client_id, const std::string& state,
                 const std::string& reason = "");
  void set_result(const std::string& client_id, const std::string& result_json);
  /// The same again changes nothing. Throws Error unless generations and steps ascend.
  void committed(const std::string& client_id, std::uint64_t generation, std::uint64_t step);

  /// Nothing: it was not submitted.
  std::optional<JournalTrial> find(const std::string& client_id);
  /// In the order of their submission.
  std::vector<JournalTrial> trials();

 private:
  void create_or_check();
  void update(const std::string& client_id, const std::function<void(JournalTrial&)>& change);

  SqlFile file_;
};

}  // namespace spillway
