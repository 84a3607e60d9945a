#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace spillway {

/// An integer that cannot be confused with another kind of id.
template <typename Tag>
struct Id {
  std::uint32_t value = 0xFFFFFFFFu;  ///< the number; the default is the invalid id

  constexpr Id() = default;
  /// From a number.
  constexpr explicit Id(std::uint32_t v) : value(v) {}
  /// From a position in a vector.
  constexpr explicit Id(std::size_t v) : value(static_cast<std::uint32_t>(v)) {}
  /// From a number.
  constexpr explicit Id(int v) : value(static_cast<std::uint32_t>(v)) {}
  /// False for a default-constructed id.
  constexpr bool valid() const { return value != 0xFFFFFFFFu; }
  /// As a position in a vector.
  constexpr std::size_t index() const { return value; }
  constexpr auto operator<=>(const Id&) const = default;
};

/// One model in training, numbered in order of submission.
using JobId = Id<struct JobTag>;
/// A device of a session, as a position in its device list.
using DeviceId = Id<struct DeviceTag>;

/// Number of a started action. It grows by one, so `a < b` means that a started first.
using ActionId = std::uint64_t;

/// A position in a vector. Layers, units, ops and buffers are numbered from 0.
constexpr std::size_t at(int position) { return static_cast<std::size_t>(position); }

}  // namespace spillway

/// @cond
template <typename Tag>
struct std::hash<spillway::Id<Tag>> {
  std::size_t operator()(spillway::Id<Tag> id) const noexcept { return id.value; }
};
/// @endcond
