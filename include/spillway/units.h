#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

/// A number of bytes, in every tier.
using Bytes = std::uint64_t;

inline namespace literals {
constexpr Bytes operator""_KiB(unsigned long long n) { return n << 10; }
constexpr Bytes operator""_MiB(unsigned long long n) { return n << 20; }
constexpr Bytes operator""_GiB(unsigned long long n) { return n << 30; }
}  // namespace literals

/// Every parameter and every range of a device or host arena starts at a multiple of this: matrix
/// kernels are chosen by the alignment of their operands, cuBLASLt's by up to 256 bytes of it
/// (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), and others have other bits.
inline constexpr Bytes kAlignment = 256;
/// Blocks start at a multiple of this in their home, and budgets are reported in it.
inline constexpr Bytes kPage = 4096;

constexpr Bytes round_up(Bytes n, Bytes multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Reads "12MiB", "1.5 GB", "4096", "64k" (binary: KiB..TiB and k..T; decimal: KB..TB).
/// Returns nothing for other text, for a negative number, and where the value exceeds 64 bits.
std::optional<Bytes> parse_bytes(std::string_view text);

/// Reads "2GB/s", "100 MiB/s", "4096/s": as parse_bytes, per second.
std::optional<Bytes> parse_rate(std::string_view text);

/// "9.4 MiB": three or more significant digits, binary units; below 1 KiB "17 B".
std::string format_bytes(Bytes n);
/// "9.4 MiB/s".
std::string format_rate(Bytes bytes_per_s);

}  // namespace spillway
