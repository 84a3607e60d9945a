#include "trainer/journal/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cassert>
#include <cerrno>
#include <utility>

namespace spillway {
namespace {

/// How long to wait for another process; a transaction takes milliseconds.
constexpr int kBusyMilliseconds = 30'000;

/// The system's error, or else the one closest to SQLite's.
int errno_of(sqlite3* database, int code) {
  if (code == SQLITE_FULL) return ENOSPC;
  if (const int code_of_system = sqlite3_system_errno(database)) return code_of_system;
  if (code == SQLITE_CANTOPEN) return ENOENT;
  return code == SQLITE_READONLY ? EROFS : EIO;
}

[[noreturn]] void fail(sqlite3* database, const std::string& path, int code) {
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      throw IoError("cannot use", path, errno_of(database, code & 0xff));
    case SQLITE_NOMEM:
      throw IoError("cannot use", path, ENOMEM);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw DatabaseInUse(path + " is in use by another process; wait for it, or stop it");
    default:
      // A query that matches no table is damage too: the tables have changed.
      throw CorruptData(path, fmt::format("is damaged or not a journal ({}); restore a copy, or "
                                          "move it and its -wal file away",
                                          sqlite3_errmsg(database)));
  }
}

}  // namespace

void SqlStatement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

SqlStatement::SqlStatement(sqlite3* database, std::string path, std::string_view sql)
    : database_(database), path_(std::move(path)) {
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v2(database, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  statement_.reset(statement);
  if (code != SQLITE_OK) fail(database, path_, code);
}

SqlStatement& SqlStatement::bind(int parameter, std::string_view text) {
  // SQLite would store an empty view without an address as NULL.
  const char* data = text.empty() ? "" : text.data();
  const int code = sqlite3_bind_text64(statement_.get(), parameter, data, text.size(),
                                       SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code == SQLITE_TOOBIG)
    throw Error(fmt::format("{} cannot hold {} bytes in one field", path_, text.size()));
  if (code != SQLITE_OK) fail(database_, path_, code);
  return *this;
}

SqlStatement& SqlStatement::bind(int parameter, std::int64_t number) {
  const int code = sqlite3_bind_int64(statement_.get(), parameter, number);
  if (code != SQLITE_OK) fail(database_, path_, code);
  return *this;
}

bool SqlStatement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code != SQLITE_ROW && code != SQLITE_DONE) fail(database_, path_, code);
  return code == SQLITE_ROW;
}

std::int64_t SqlStatement::number(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string SqlStatement::text(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
  return size == 0 ? std::string() : std::string(static_cast<const char*>(data), size);
}

void SqlFile::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

SqlFile::SqlFile(const std::filesystem::path& path) : path_(path) {
  sqlite3* database = nullptr;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int code = sqlite3_open_v2(path_.c_str(), &database, kFlags, nullptr);
  database_.reset(database);
  if (database == nullptr) throw IoError("cannot use", path_, ENOMEM);
  if (code != SQLITE_OK) fail(database, path_, code);
  sqlite3_busy_timeout(database, kBusyMilliseconds);
}

SqlStatement SqlFile::prepare(std::string_view sql) { return {database_.get(), path_, sql}; }

std::int64_t SqlFile::number(std::string_view sql) {
  auto statement = prepare(sql);
  statement.step();
  return statement.number(0);
}

std::string SqlFile::text(std::string_view sql) {
  auto statement = prepare(sql);
  statement.step();
  return statement.text(0);
}

bool SqlFile::in_transaction() const { return sqlite3_get_autocommit(database_.get()) == 0; }

SqlTransaction::SqlTransaction(SqlFile& file) : file_(file) { file_.run("BEGIN IMMEDIATE"); }

SqlTransaction::~SqlTransaction() {
  try {
    if (file_.in_transaction()) file_.run("ROLLBACK");
  } catch (const Error&) {
    // SQLite rolls back when the file is opened again.
  }
}

}  // namespace spillway
