#pragma once

#include <cstddef>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

/// Messages and tables quote keys, values and file names. A terminal would obey the control
/// characters in them, so nothing reaches it but through here.
namespace spillway {

/// `text` with each byte of a control character, and each that is not UTF-8, written as "\x1b".
/// Newlines stay.
std::string fit_for_terminal(std::string_view text);

/// The width of fit_for_terminal(text), one line, in columns of a terminal.
std::size_t columns_of(std::string_view text);

/// The beginning of fit_for_terminal(text) that has room in so many columns.
std::string cut_to_columns(std::string_view text, std::size_t columns);

/// Passes on what is written to it to another stream, when it is flushed or destroyed.
class PassingStream : public std::ostream {
 public:
  enum class As : std::uint8_t { it_is, fit_for_terminal };

  /// `sink` outlives it.
  PassingStream(std::ostream& sink, As as) : std::ostream(nullptr), buffer_(sink, as) {
    rdbuf(&buffer_);
  }
  ~PassingStream() override { flush(); }
  PassingStream(const PassingStream&) = delete;
  PassingStream& operator=(const PassingStream&) = delete;

  /// Drops what it has not passed on. Returns whether it has never passed anything on.
  bool take_back() { return buffer_.take_back(); }

 private:
  class Buffer final : public std::streambuf {
   public:
    Buffer(std::ostream& sink, As as) : sink_(sink), as_(as) {}
    bool take_back();

   protected:
    int_type overflow(int_type c) override;
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int sync() override;

   private:
    std::ostream& sink_;
    As as_;
    std::string pending_;
    bool has_passed_on_ = false;
  };
  Buffer buffer_;
};

}  // namespace spillway
