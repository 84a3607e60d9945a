#include "runs/text/utf8.h"

#include <algorithm>
#include <array>
#include <span>

namespace spillway {
namespace {

struct CodeRange {
  char32_t first, last;
};

bool is_in(std::span<const CodeRange> ranges, char32_t code) {
  return std::ranges::any_of(
      ranges, [&](const CodeRange& range) { return range.first <= code && code <= range.last; });
}

/// For each number of bytes: the highest bits of the first byte, and the smallest code.
struct Form {
  unsigned mask, lead;
  char32_t least;
};
constexpr std::array<Form, 4> kForms{
    {{0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}}};

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

Utf8Char first_char(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  const auto form =
      std::ranges::find_if(kForms, [&](const Form& f) { return (lead & f.mask) == f.lead; });
  const auto num_bytes = static_cast<std::size_t>(form - kForms.begin()) + 1;
  if (form == kForms.end() || text.size() < num_bytes) return {};
  char32_t code = lead & ~form->mask;
  for (std::size_t i = 1; i < num_bytes; ++i) {
    if ((byte_at(text, i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte_at(text, i) & 0x3F);
  }
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < form->least || code > 0x10FFFF || is_surrogate) return {};
  return {code, num_bytes, true};
}

bool is_control(char32_t code) {
  static constexpr std::array<CodeRange, 6> kControls{{{0x00, 0x1F},
                                                       {0x7F, 0x9F},
                                                       {0x061C, 0x061C},
                                                       {0x200E, 0x200F},
                                                       {0x2028, 0x202E},
                                                       {0x2066, 0x2069}}};
  return is_in(kControls, code);
}

bool is_blank(char32_t code) {
  static constexpr std::array<CodeRange, 13> kBlanks{{{0xA0, 0xA0},
                                                      {0xAD, 0xAD},
                                                      {0x034F, 0x034F},
                                                      {0x115F, 0x1160},
                                                      {0x1680, 0x1680},
                                                      {0x180E, 0x180E},
                                                      {0x2000, 0x206F},
                                                      {0x3000, 0x3000},
                                                      {0x3164, 0x3164},
                                                      {0xE000, 0xF8FF},
                                                      {0xFEFF, 0xFEFF},
                                                      {0xFFA0, 0xFFA0},
                                                      {0xFFF0, 0xFFFF}}};
  constexpr char32_t kAfterLetters = 0xE0000;
  return is_in(kBlanks, code) || code >= kAfterLetters;
}

std::size_t columns_of(char32_t code) {
  static constexpr std::array<CodeRange, 7> kJoining{{{0x0300, 0x036F},
                                                      {0x0483, 0x0489},
                                                      {0x0591, 0x05BD},
                                                      {0x064B, 0x065F},
                                                      {0x200B, 0x200F},
                                                      {0x20D0, 0x20FF},
                                                      {0xFE00, 0xFE0F}}};
  static constexpr std::array<CodeRange, 11> kWide{{{0x1100, 0x115F},
                                                    {0x2E80, 0x303E},
                                                    {0x3041, 0xA4CF},
                                                    {0xA960, 0xA97C},
                                                    {0xAC00, 0xD7A3},
                                                    {0xF900, 0xFAFF},
                                                    {0xFE30, 0xFE6F},
                                                    {0xFF00, 0xFF60},
                                                    {0xFFE0, 0xFFE6},
                                                    {0x1F300, 0x1FAFF},
                                                    {0x20000, 0x3FFFD}}};
  if (is_in(kJoining, code)) return 0;
  return is_in(kWide, code) ? 2 : 1;
}

}  // namespace spillway
