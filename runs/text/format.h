#pragma once

#include <span>
#include <string>

namespace spillway {

/// The shortest text that reads back as `value`: "0.003", "1e-08".
std::string format_number(double value);
/// With a fixed number of decimals: "2.413".
std::string format_fixed(double value, int decimals);
/// A share, rounded to a percent: "98 %".
std::string format_percent(double share);
/// Three significant digits and a thousands unit: "950", "12.3k", "1.20M".
std::string format_count(double value);
/// A number with four significant digits, if that is shorter: "0.003726"; other text as it is.
std::string format_rounded(const std::string& text);
/// "8 s", "2:05 min", "3:20 h", "4.1 days".
std::string format_duration(double seconds);
/// Below a minute with three significant digits: "0.0123 s", "2.05 s"; otherwise format_duration().
std::string format_seconds(double seconds);
/// Words of a command as one writes them in a shell, separated by spaces.
std::string in_shell(std::span<const std::string> words);
/// Pads `text` with spaces to a width in terminal columns, on the right or on the left.
std::string padded(const std::string& text, std::size_t width);
std::string padded_left(const std::string& text, std::size_t width);

}  // namespace spillway
