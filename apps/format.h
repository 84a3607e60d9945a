#pragma once

#include <string>

namespace spillway {

/// The shortest text that reads back as `value`: "0.003", "1e-08".
std::string format_number(double value);
/// With a fixed number of decimals: "2.413".
std::string format_fixed(double value, int decimals);
/// A share in whole percent: "98 %".
std::string format_percent(double share);
/// Three significant digits and a thousands unit: "950", "12.3k", "1.20M".
std::string format_count(double value);

}  // namespace spillway
