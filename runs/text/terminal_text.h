#pragma once

#include <cstddef>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

/// Messages and tables quote keys, values and file names. A terminal would execute control
/// characters in them, so all output passes through these functions.
namespace spillway {

/// Escapes control characters and bytes that are not UTF-8 as "\x1b". Newlines stay.
std::string fit_for_terminal(std::string_view text);

/// The width of fit_for_terminal(text), one line, in terminal columns.
std::size_t columns_of(std::string_view text);

/// The longest prefix of fit_for_terminal(text) that fits into `columns`.
std::string cut_to_columns(std::string_view text, std::size_t columns);

/// Buffers its text and forwards it to another stream when it is flushed or destroyed.
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

  /// Drops the buffered text. Returns true if nothing was ever forwarded.
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
