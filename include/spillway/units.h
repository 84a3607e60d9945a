#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

/// A number of bytes, in any tier.
using Bytes = std::uint64_t;

inline namespace literals {
/// 1024 bytes each.
constexpr Bytes operator""_KiB(unsigned long long n) { return n << 10; }
/// 1024 KiB each.
constexpr Bytes operator""_MiB(unsigned long long n) { return n << 20; }
/// 1024 MiB each.
constexpr Bytes operator""_GiB(unsigned long long n) { return n << 30; }
}  // namespace literals

/// Every parameter and every range of a device or host arena starts at a multiple of this. The
/// alignment of the operands decides which matrix kernel runs, and so the bits; cuBLASLt looks at
/// up to 256 bytes of it (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES).
inline constexpr Bytes kAlignment = 256;
/// Blocks start at a multiple of this in their home, and budgets are reported as multiples of it.
inline constexpr Bytes kPage = 4096;

/// The smallest multiple of `multiple` that is at least `n`.
constexpr Bytes round_up(Bytes n, Bytes multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Reads "12MiB", "1.5 GB", "4096", "64k" (binary: KiB..TiB and k..T; decimal: KB..TB).
/// Returns nothing for other text, a negative number, or a value of more than 64 bits.
std::optional<Bytes> parse_bytes(std::string_view text);

/// Reads "2GB/s", "100 MiB/s", "4096/s", like parse_bytes().
std::optional<Bytes> parse_rate(std::string_view text);

/// "9.4 MiB": three or more significant digits, binary units; below 1 KiB "17 B".
std::string format_bytes(Bytes n);
/// "9.4 MiB/s".
std::string format_rate(Bytes bytes_per_s);

}  // namespace spillway
