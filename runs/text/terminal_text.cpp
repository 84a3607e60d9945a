#include "runs/text/terminal_text.h"

#include <fmt/format.h>

#include "runs/text/utf8.h"

namespace spillway {
namespace {

/// Calls `use` with each character, escaped if necessary, and its width, until it returns false.
template <typename Use>
void for_each_shown(std::string_view text, const Use& use) {
  while (!text.empty()) {
    const Utf8Char next = first_char(text);
    const std::string_view bytes = text.substr(0, next.num_bytes);
    text.remove_prefix(next.num_bytes);
    if (bytes == "\n" || (next.is_valid && !is_control(next.code))) {
      if (!use(bytes, columns_of(next.code))) return;
      continue;
    }
    for (const char c : bytes) {
      const std::string shown = fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      if (!use(shown, shown.size())) return;
    }
  }
}

}  // namespace

std::string fit_for_terminal(std::string_view text) {
  std::string shown;
  for_each_shown(text, [&](std::string_view bytes, std::size_t) {
    shown += bytes;
    return true;
  });
  return shown;
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for_each_shown(text, [&](std::string_view, std::size_t more) {
    columns += more;
    return true;
  });
  return columns;
}

std::string cut_to_columns(std::string_view text, std::size_t columns) {
  std::string shown;
  for_each_shown(text, [&](std::string_view bytes, std::size_t more) {
    if (more > columns) return false;
    columns -= more;
    shown += bytes;
    return true;
  });
  return shown;
}

bool PassingStream::Buffer::take_back() {
  pending_.clear();
  return !has_passed_on_;
}

PassingStream::Buffer::int_type PassingStream::Buffer::overflow(int_type c) {
  if (!traits_type::eq_int_type(c, traits_type::eof())) pending_ += traits_type::to_char_type(c);
  return traits_type::not_eof(c);
}

std::streamsize PassingStream::Buffer::xsputn(const char* text, std::streamsize size) {
  pending_.append(text, static_cast<std::size_t>(size));
  return size;
}

int PassingStream::Buffer::sync() {
  has_passed_on_ |= !pending_.empty();
  sink_ << (as_ == As::it_is ? pending_ : fit_for_terminal(pending_)) << std::flush;
  pending_.clear();
  return sink_ ? 0 : -1;
}

}  // namespace spillway
