#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "spillway/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace spillway {

/// An SQL statement with its values. Parameters count from 1, columns from 0.
class SqlStatement {
 public:
  SqlStatement& bind(int parameter, std::string_view text);
  SqlStatement& bind(int parameter, std::int64_t number);
  /// Moves to the next row; false after the last.
  bool step();
  std::int64_t number(int column) const;
  /// All bytes, even if they are not UTF-8.
  std::string text(int column) const;

 private:
  friend class SqlFile;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  SqlStatement(sqlite3* database, std::string path, std::string_view sql);

  sqlite3* database_;
  std::string path_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

/// Another process holds the database.
class DatabaseInUse : public Error {
 public:
  using Error::Error;
};

/// An SQLite database, created if it does not exist. One thread at a time; any number of processes,
/// which wait for each other. Everything throws errors that name the file: IoError from the system
/// (a full disk is ENOSPC), CorruptData for an invalid database, DatabaseInUse after a timeout.
class SqlFile {
 public:
  explicit SqlFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  SqlStatement prepare(std::string_view sql);
  void run(std::string_view sql) { prepare(sql).step(); }
  /// The first column of the first row.
  std::int64_t number(std::string_view sql);
  std::string text(std::string_view sql);
  bool in_transaction() const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  std::string path_;
  std::unique_ptr<sqlite3, Close> database_;
};

/// Makes all changes until commit(), or none. Locks out all other writers.
class SqlTransaction {
 public:
  explicit SqlTransaction(SqlFile& file);
  ~SqlTransaction();
  SqlTransaction(const SqlTransaction&) = delete;
  SqlTransaction& operator=(const SqlTransaction&) = delete;
  void commit() { file_.run("COMMIT"); }

 private:
  SqlFile& file_;
};

}  // namespace spillway
